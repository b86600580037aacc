"""Frames come out as they went in, however they are cut; nothing else makes the reader hold on."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.wire import (
    PROTOCOL_VERSION,
    Frame,
    FrameError,
    FrameReader,
    OtherVersionError,
    pack_frame,
)

LIMITS = {1: 300, 2: 0, 9: 70_000}

frames = st.one_of(
    st.builds(Frame, st.just(1), st.integers(0, 2**32 - 1), st.binary(max_size=300)),
    st.builds(Frame, st.just(2), st.integers(0, 2**32 - 1), st.just(b"")),
    st.builds(Frame, st.just(9), st.integers(0, 2**32 - 1), st.binary(max_size=1000)),
)


def read(data: bytes, cuts: list[int]) -> tuple[list[Frame], str | None]:
    """What a reader makes of `data` in these pieces: frames, and the error that ended it."""
    reader = FrameReader(LIMITS)
    got: list[Frame] = []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    try:
        for start, end in pairwise(edges):
            for frame in reader.feed(data[start:end]):
                got.append(frame)
    except FrameError as error:
        return got, str(error)
    return got, None


@settings(deadline=None)
@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 10_000), max_size=12))
def test_frames_come_out_whole_however_the_bytes_are_cut(sent, cuts) -> None:
    data = b"".join(map(pack_frame, sent))
    assert read(data, cuts) == (sent, None)


@settings(deadline=None)
@given(
    st.lists(frames, max_size=3),
    st.binary(max_size=400),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_garbage_is_found_at_the_same_place_however_it_is_cut(sent, garbage, cuts) -> None:
    data = b"".join(map(pack_frame, sent)) + garbage
    assert read(data, cuts) == read(data, [])


@settings(deadline=None)
@given(st.lists(frames, max_size=3), st.data())
def test_a_flipped_bit_never_brings_another_exception(sent, data) -> None:
    raw = bytearray(b"".join(map(pack_frame, sent)))
    if raw:
        bit = data.draw(st.integers(0, 8 * len(raw) - 1))
        raw[bit // 8] ^= 1 << bit % 8
    got, _ = read(bytes(raw), [])
    assert all(len(frame.payload) <= LIMITS[frame.kind] for frame in got)


def header(length: int, version: int, kind: int) -> bytes:
    return length.to_bytes(4, "big") + bytes([version, kind]) + bytes(4)


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        (header(301, PROTOCOL_VERSION, 1), "301 bytes, at most 300"),
        (header(2**32 - 1, PROTOCOL_VERSION, 9), "at most 70000"),
        (header(0, PROTOCOL_VERSION, 3), "kind 3 may not come here"),
    ],
)
def test_a_bad_header_is_refused_before_its_payload_comes(head: bytes, problem: str) -> None:
    with pytest.raises(FrameError, match=problem):
        list(FrameReader(LIMITS).feed(head))


def test_another_version_is_told_even_if_all_else_is_strange() -> None:
    with pytest.raises(OtherVersionError) as found:
        list(FrameReader(LIMITS).feed(header(2**31, 7, 200)))
    assert found.value.version == 7


def test_frames_before_the_bad_one_still_count() -> None:
    good = Frame(1, 5, b"x")
    got, error = read(pack_frame(good) + header(0, PROTOCOL_VERSION, 77), [])
    assert got == [good]
    assert error is not None


def test_the_reader_knows_when_it_was_cut_within_a_frame() -> None:
    reader = FrameReader(LIMITS)
    data = pack_frame(Frame(1, 1, b"abc"))
    assert list(reader.feed(data[:5])) == []
    assert reader.within_frame
    assert len(list(reader.feed(data[5:]))) == 1
    assert not reader.within_frame


def test_a_reader_is_widened_between_two_frames_of_one_read() -> None:
    kind = min(LIMITS)
    both = pack_frame(Frame(kind, 1, b"")) + pack_frame(Frame(201, 2, b"ab"))
    reader = FrameReader({kind: 0})
    frames = reader.feed(both)
    assert next(frames).number == 1
    reader.widen({201: 2})
    assert [frame.number for frame in frames] == [2]
    with pytest.raises(FrameError, match="kind 201 may not come"):
        list(FrameReader({kind: 0}).feed(both))


def test_one_frame_means_one() -> None:
    data = pack_frame(Frame(1, 1, b"abc"))
    assert FrameReader(LIMITS).feed_one(data[:-1]) is None
    assert FrameReader(LIMITS).feed_one(data) == Frame(1, 1, b"abc")
    for more in (data + data, data + b"\0"):
        with pytest.raises(FrameError, match="more came"):
            FrameReader(LIMITS).feed_one(more)


def test_a_header_alone_makes_the_reader_hold_nothing() -> None:
    """Memory follows what came, not what was announced."""
    reader = FrameReader({1: 2**31})
    tracemalloc.start()
    try:
        list(reader.feed(header(2**31, PROTOCOL_VERSION, 1) + bytes(1000)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
