"""The remote tier over an adapter that answers, lies, raises, hangs: what is wrong is a miss."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_kit import ORIGIN, block_of, checksums, key_of, pages_of, record_of, same

from antiphon.errors import BugError
from antiphon.store.record import (
    REMOVED,
    KvOrigin,
    RecordHeader,
    decode_header,
    new_pages,
)
from antiphon.store.remote import RemoteTier
from antiphon.types import Tier


class Values:
    """An adapter over a dictionary.

    `raises` and `answers` come of every call; with `holds` it waits for `reset`.
    """

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.raises: BaseException | None = None
        self.answers: Sequence | None = None
        self.holds = False
        self.released = threading.Event()
        self.asked = 0
        self.resets = 0

    def exists(self, names: Sequence[bytes]) -> Sequence[bool]:
        return self._said([name in self.kept for name in names])

    def get(self, names: Sequence[bytes], most_bytes: int) -> Sequence[bytes | None]:
        found = [self.kept.get(name) for name in names]
        return self._said([value and value[:most_bytes] for value in found])

    def put(self, values: Sequence[tuple[bytes, bytes]]) -> Sequence[bool]:
        self.kept.update(values)
        return self._said([True] * len(values))

    def remove(self, names: Sequence[bytes]) -> None:
        for name in names:
            self.kept.pop(name, None)
        self._said(())

    def names(self, beginning: bytes, place: int) -> tuple[int, Sequence[bytes]]:
        here = [name for name in self.kept if name[-1] // 64 == place]
        self._said(())
        return (place + 1) % 4, [name for name in here if name.startswith(beginning)]

    def reset(self) -> None:
        self.resets += 1
        self.released.set()

    def _said(self, answer: Sequence) -> Sequence:
        self.asked += 1
        if self.holds:
            self.released.wait(60)
            raise ConnectionError("reset")
        if self.raises is not None:
            raise self.raises
        return answer if self.answers is None else self.answers


class HandClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def remote(values: Values, origin: KvOrigin = ORIGIN, **options: object) -> RemoteTier:
    return RemoteTier(values, origin, **{"timeout_s": 30.0, **options})


def put(tier: RemoteTier, *numbers: int) -> tuple[bool, ...]:
    blocks = [(block_of(n), pages_of(n), checksums(pages_of(n))) for n in numbers]
    return tier.put(blocks)


def got(tier: RemoteTier, *numbers: int) -> list[int]:
    """Which of the blocks can be read; those must be the right ones."""
    into = [new_pages(ORIGIN) for _ in numbers]
    good = tier.get([key_of(n) for n in numbers], into)
    assert len(good) == len(numbers)
    for number, pages, is_good in zip(numbers, into, good, strict=True):
        assert not is_good or same(pages, pages_of(number))
    return [number for number, is_good in zip(numbers, good, strict=True) if is_good]


def dropped(tier: RemoteTier) -> dict[str, int]:
    return dict(tier.stats().dropped)


def test_what_is_put_is_got_by_another_tier() -> None:
    values = Values()
    assert put(remote(values), 0, 1, 3) == (True, True, True)
    other = remote(values)
    assert got(other, 0, 1, 2, 3) == [0, 1, 3]
    assert other.present([key_of(n) for n in range(4)]) == 2
    assert other.present([]) == 0
    assert put(other) == ()
    stats = other.stats()
    assert (stats.tier, stats.hit_blocks_total, stats.missed_blocks_total) == (Tier.REMOTE, 3, 1)


def test_names_say_the_version_of_the_format() -> None:
    values = Values()
    put(remote(values), 0)
    assert values.kept == {b"antiphon:kv:1:" + key_of(0): record_of(0)}


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_values_that_were_changed_are_misses(data: st.DataObject) -> None:
    """LMCache 1810: killing the remote store garbled the answers."""
    value = bytearray(record_of(0))
    match data.draw(st.sampled_from(["flip", "cut", "grow", "random"])):
        case "flip":
            value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
        case "cut":
            del value[data.draw(st.integers(0, len(value) - 1)) :]
        case "grow":
            value += data.draw(st.binary(min_size=1, max_size=100))
        case _:
            value[:] = data.draw(st.binary(max_size=2000))
    values = Values()
    values.kept[b"antiphon:kv:1:" + key_of(0)] = bytes(value)
    tier = remote(values)
    assert got(tier, 0) == []
    assert dropped(tier).get("read_damaged", 0) + tier.stats().missed_blocks_total == 1


@pytest.mark.parametrize(
    "value",
    [
        record_of(1),
        record_of(0, replace(ORIGIN, identity=b"another model")),
        record_of(0, replace(ORIGIN, layout="another layout")),
        record_of(0, replace(ORIGIN, page_bytes=576)),
        REMOVED + record_of(0)[len(REMOVED) :],
    ],
    ids=["another key", "another model", "another layout", "another size", "removed"],
)
def test_whole_records_of_something_else_are_misses(value: bytes) -> None:
    """LMCache 4385: the tier returned another request's KV."""
    values = Values()
    values.kept[b"antiphon:kv:1:" + key_of(0)] = value
    tier = remote(values)
    assert got(tier, 0) == []
    assert dropped(tier) == {"read_damaged": 1}


class Trusting(RemoteTier):
    """Believes whatever comes under a name: a negative control."""

    def _accepted(self, key, value, into):
        header = decode_header(value or b"")
        if isinstance(header, RecordHeader):
            for chunk, page in zip(header.chunks, into, strict=True):
                page[:] = np.frombuffer(value, np.uint8, chunk.stored_bytes, chunk.at)
        return isinstance(header, RecordHeader)


def test_control_a_tier_that_believes_what_comes_is_found() -> None:
    values = Values()
    values.kept[b"antiphon:kv:1:" + key_of(0)] = record_of(1)
    with pytest.raises(AssertionError):
        got(Trusting(values, ORIGIN), 0)


@pytest.mark.parametrize(
    "raises", [OSError("gone"), TimeoutError("slow"), ValueError("no number"), MemoryError()]
)
def test_whatever_an_adapter_raises_is_a_miss(raises: BaseException) -> None:
    values = Values()
    tier = remote(values)
    put(tier, 0)
    values.raises = raises
    assert got(tier, 0) == []
    assert tier.present([key_of(0)]) == 0
    assert dropped(tier) == {f"failed_{type(raises).__name__}": 2}
    values.raises = None
    assert got(tier, 0) == [0]


def test_our_own_bugs_are_not_hidden() -> None:
    values = Values()
    values.raises = BugError("broken")
    with pytest.raises(BugError, match="broken"):
        remote(values).present([key_of(0)])
    with pytest.raises(BugError):
        remote(values).get([key_of(0)], [[]])


@pytest.mark.parametrize("answers", [[], [b""] * 3])
def test_another_number_of_answers_is_a_failure(answers: list) -> None:
    values = Values()
    values.answers = answers
    tier = remote(values)
    assert got(tier, 0, 1) == []
    assert dropped(tier) == {"failed_wrong_number": 1}


def test_three_failures_stop_the_asking_until_it_cooled_down() -> None:
    """Mooncake 1088: each request waited for a store that was not there."""
    values, clock = Values(), HandClock()
    tier = remote(values, clock=clock)
    put(tier, 0)
    values.raises = OSError("gone")
    for _ in range(3):
        got(tier, 0)
    asked = values.asked
    for _ in range(10):
        assert got(tier, 0) == []
        assert put(tier, 1) == (False,)
        assert tier.present([key_of(0)]) == 0
    assert values.asked == asked
    clock.now = 1.0
    got(tier, 0)
    got(tier, 0)
    assert values.asked == asked + 1, "one probe"
    clock.now = 3.0
    values.raises = None
    assert got(tier, 0) == [0]
    assert put(tier, 1) == (True,)
    assert dropped(tier)["breaker_opened"] == 2


def test_a_call_that_hangs_is_left_alone_at_the_deadline() -> None:
    values = Values()
    values.holds = True
    tier = remote(values, timeout_s=0.05)
    assert got(tier, 0) == []
    assert values.resets == 1
    assert dropped(tier)["failed_late"] == 1


def test_a_call_that_not_even_a_reset_ends_blocks_nobody() -> None:
    class Deaf(Values):
        def reset(self) -> None:
            self.resets += 1

    values, clock = Deaf(), HandClock()
    values.holds = True
    tier = remote(values, clock=clock, timeout_s=0.05)
    for _ in range(3):
        assert got(tier, 0) == []
    assert values.asked == 1
    assert dropped(tier) == {"breaker_opened": 1, "failed_late": 1, "failed_stuck": 2}
    values.released.set()
    values.holds = False


def test_a_second_caller_waits_for_its_turn_and_no_longer_than_it_may() -> None:
    values = Values()
    values.holds = True
    tier = remote(values)
    first = threading.Thread(target=lambda: got(tier, 0))
    first.start()
    while not values.asked:
        pass
    assert tier.present([key_of(0)], timeout_s=0.01) == 0
    assert dropped(tier) == {"busy": 1}
    values.released.set()
    first.join()


def test_large_requests_go_in_parts() -> None:
    origin = replace(ORIGIN, page_bytes=8 << 20)
    asked: list[int] = []

    class Counting(Values):
        def get(self, names, most_bytes):
            asked.append(len(names))
            return super().get(names, most_bytes)

    tier = remote(Counting(), origin)
    pages = new_pages(origin)
    assert tier.get([key_of(n) for n in range(5)], [pages] * 5) == (False,) * 5
    assert asked == [2, 2, 1]


def test_blocks_larger_than_a_value_may_be_are_not_offered() -> None:
    values = Values()
    tier = remote(values, most_value_bytes=1000)
    assert put(tier, 0, 1) == (False, False)
    assert values.asked == 0
    assert dropped(tier) == {"put_not_taken": 2}


def test_a_block_that_no_record_holds_is_left_out_and_others_are_kept() -> None:
    values = Values()
    tier = remote(values)
    pages = pages_of(0)
    named = [block_of(0), block_of(1, tenant=b"t" * 65), block_of(2)]
    kept = tier.put([(block, pages_of(n), checksums(pages_of(n))) for n, block in enumerate(named)])
    assert kept == (True, False, True)
    assert got(tier, 0, 1, 2) == [0, 2]
    assert same(pages, pages_of(0))


def test_after_close_everything_misses() -> None:
    values = Values()
    tier = remote(values)
    put(tier, 0)
    tier.close()
    assert got(tier, 0) == []
    assert put(tier, 1) == (False,)
    assert tier.present([key_of(0)]) == 0
    tier.close()


def test_all_of_an_origin_is_cleared_and_nothing_of_others() -> None:
    values = Values()
    other = replace(ORIGIN, identity=bytes(reversed(ORIGIN.identity)) + b"other")
    assert put(remote(values), *range(20)) == (True,) * 20
    assert remote(values, other).clear(None) == ((), True)
    values.kept[b"of somebody else"] = values.kept[b"antiphon:kv:1:" + bytes(32)] = b"something"
    assert remote(values).clear(b"nobody") == ((), True)
    gone, all_asked = remote(values).clear(b"tenant")
    assert (sorted(gone), all_asked) == (sorted(key_of(n) for n in range(20)), True)
    assert set(values.kept) == {b"of somebody else", b"antiphon:kv:1:" + bytes(32)}


def test_a_system_that_cannot_be_asked_or_names_without_end_is_not_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = Values()
    put(remote(values), 0, 1)
    values.raises = ConnectionError("gone")
    assert remote(values).clear(None) == ((), False)
    assert remote(values).clear(None, [key_of(0)]) == ((), False)
    values.raises = None
    monkeypatch.setattr(values, "names", lambda beginning, place: (place + 1, []))
    monkeypatch.setattr("antiphon.store.remote._MOST_PARTS", 10)
    assert remote(values).clear(None) == ((), False)
    assert remote(values).clear(None, [key_of(0), key_of(9)]) == ((key_of(0),), True)


def test_what_is_there_is_listed_in_parts_and_only_what_is_ours() -> None:
    values = Values()
    tier = remote(values)
    put(tier, *range(9))
    values.kept[b"antiphon:kv:1:" + key_of(2)] = record_of(2, replace(ORIGIN, identity=b"x" * 32))
    values.kept[b"antiphon:kv:1:" + key_of(3)] = b"no record"
    found: list[bytes] = []
    place, parts = 0, 0
    while True:
        said = tier.some(place)
        assert said is not None
        place, keys = said
        found += keys
        parts += 1
        if not place:
            break
    assert parts == 4
    assert sorted(found) == sorted(key_of(n) for n in range(9) if n not in (2, 3))
    values.raises = ConnectionError("away")
    assert tier.some(0) is None


def test_verify_tells_wrong_from_absent_and_from_others_and_removes_what_is_wrong() -> None:
    values = Values()
    tier = remote(values)
    put(tier, *range(5))
    damaged, others, swapped, gone = (b"antiphon:kv:1:" + key_of(n) for n in range(1, 5))
    values.kept[damaged] = values.kept[damaged][:-1]
    values.kept[swapped] = record_of(0)
    values.kept[others] = record_of(2, replace(ORIGIN, identity=b"x" * 32))
    del values.kept[gone]
    verified = tier.verify([key_of(n) for n in range(5)])
    assert (verified.wrong, verified.absent) == ((key_of(1), key_of(3)), (key_of(2), key_of(4)))
    assert verified.all_asked
    assert set(values.kept) == {b"antiphon:kv:1:" + key_of(0), others}
    assert (tier.stats().hit_blocks_total, dropped(tier)) == (0, {})
    values.raises = ConnectionError("away")
    silent = tier.verify([key_of(0)])
    assert (silent.wrong, silent.absent, silent.all_asked) == ((), (), False)
