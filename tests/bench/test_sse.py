"""Server-sent events: the same ones however their bytes were cut, and nothing without bound."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.bench.sse import SseSplitter

LIMIT = 2**12
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
VALUES = st.text(st.characters(exclude_characters="\r\n"), max_size=12).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
"""Any text of one line, most of it of several bytes a character."""
LINES = st.one_of(
    VALUES.map(lambda value: b"data: " + value),
    VALUES.map(lambda value: b"data:" + value),
    VALUES.map(lambda value: b": " + value),
    VALUES.map(lambda value: b"event: " + value),
    VALUES.map(lambda value: b"datum: " + value),
    st.just(b"data"),
    st.just(b""),
    st.just(b""),
)


def by_the_standard(lines: list[bytes]) -> list[bytes]:
    """The events of whole lines, as HTML 9.2.6 says it, step by step."""
    events: list[bytes] = []
    data: bytes | None = None
    for line in lines:
        if line == b"":
            if data is not None:
                events.append(data)
            data = None
        elif not line.startswith(b":"):
            name, _, value = line.partition(b":")
            if name == b"data":
                value = value[1:] if value.startswith(b" ") else value
                data = value if data is None else data + b"\n" + value
    return events


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(stream) + 1) for place in places} | {0, len(stream)})
    return [stream[begin:end] for begin, end in pairwise(ends)]


def events_of(segments: list[bytes], limit: int = LIMIT) -> list[bytes]:
    splitter = SseSplitter(limit)
    return [event for segment in segments for event in splitter.feed(segment)]


@settings(deadline=None)
@given(
    lines=st.lists(st.tuples(LINES, ENDS), max_size=12),
    has_bom=st.booleans(),
    places=st.lists(st.integers(0, 2**16), max_size=12),
)
def test_any_segmentation_gives_the_events_of_the_standard(
    lines: list[tuple[bytes, bytes]], has_bom: bool, places: list[int]
) -> None:
    # CR, then a line that is empty and ends with LF: on the wire that is one CRLF.
    expected_lines: list[bytes] = []
    for index, (line, end) in enumerate(lines):
        if not (index and line == b"" and end == b"\n" and lines[index - 1][1] == b"\r"):
            expected_lines.append(line)
    stream = (b"\xef\xbb\xbf" if has_bom else b"") + b"".join(a + b for a, b in lines)
    assert events_of(cut(stream, places)) == by_the_standard(expected_lines)
    assert events_of([bytes([byte]) for byte in stream]) == by_the_standard(expected_lines)


@settings(deadline=None)
@given(segments=st.lists(st.binary(max_size=200), max_size=30))
def test_garbage_neither_raises_nor_piles_up(segments: list[bytes]) -> None:
    splitter = SseSplitter(64)
    for segment in segments:
        splitter.feed(segment)
        assert splitter.held_bytes <= 64
        assert splitter.overflowed or splitter.held_bytes <= 64


def test_an_event_comes_with_its_last_byte() -> None:
    splitter = SseSplitter(LIMIT)
    assert splitter.feed(b"data: a\n") == []
    assert splitter.feed(b"\n") == [b"a"]
    assert splitter.feed(b"data: b\r\n\r") == [b"b"]
    assert splitter.feed(b"\ndata: c\n\ndata: d\n\n") == [b"c", b"d"]


def test_a_long_line_and_a_long_event_overflow_once_and_for_all() -> None:
    for first in (b"data: " + b"x" * 70, b"data: 12345678\n" * 9, b":" * 70):
        splitter = SseSplitter(64)
        assert splitter.feed(first) == []
        assert splitter.overflowed
        assert splitter.feed(b"\n\ndata: a\n\n") == []


def test_an_event_of_exactly_the_limit_is_one() -> None:
    line = b"data: " + b"x" * 57
    assert events_of([line + b"\n\n"], limit=65) == [line[6:]]
    assert events_of([line + b"\n", b"\n"], limit=65) == [line[6:]]
