"""What waits to be read is bounded, and each lane has its own order and end."""

import asyncio
from typing import cast

from antiphon.live.unread import MAX_UNREAD_BYTES, Unread
from antiphon.wire import Frame, FrameStream, Kind


class Stream:
    """Counts how often it was held up, and lives until the test says otherwise."""

    def __init__(self) -> None:
        self.lives = True
        self.paused = False

    def alive(self) -> bool:
        return self.lives

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


def frame(number: int, size: int = 1) -> Frame:
    return Frame(Kind.EVENTS, number, bytes(size))


def made(lanes: int = 1) -> tuple[Stream, Unread]:
    stream = Stream()
    return stream, Unread(cast(FrameStream, stream), lanes)


async def test_lanes_keep_their_own_order() -> None:
    _, unread = made(2)
    for number in range(4):
        unread.put(frame(number), number % 2)
    assert len(unread) == 4
    odd = [await unread.next(1), await unread.next(1)]
    even = [await unread.next(0), await unread.next(0)]
    assert (odd, even) == ([frame(1), frame(3)], [frame(0), frame(2)])
    assert len(unread) == 0


async def test_above_the_bound_of_all_lanes_the_other_side_waits() -> None:
    stream, unread = made(2)
    quarter = MAX_UNREAD_BYTES // 4
    for number in range(3):
        unread.put(frame(number, quarter), number % 2)
        assert not stream.paused
    unread.put(frame(3, quarter), 1)
    assert stream.paused
    await unread.next(0)
    assert stream.paused, "half of it is still there"
    await unread.next(1)
    await unread.next(1)
    assert not stream.paused


async def test_empty_frames_count_too() -> None:
    stream, unread = made()
    for number in range(MAX_UNREAD_BYTES // 256 + 1):
        unread.put(frame(number, 0))
    assert stream.paused


async def test_a_reader_waits_for_its_lane_and_learns_of_the_end() -> None:
    stream, unread = made(2)
    reader = asyncio.ensure_future(unread.next(1))
    await asyncio.sleep(0)
    unread.put(frame(1), 0)
    await asyncio.sleep(0)
    assert not reader.done()
    stream.lives = False
    unread.wake()
    assert await reader is None
    assert await unread.next(0) == frame(1), "what had come before is read first"
    assert await unread.next(0) is None


async def test_what_is_forgotten_takes_no_room() -> None:
    stream, unread = made(2)
    for lane in (0, 1):
        unread.put(frame(lane, MAX_UNREAD_BYTES // 2), lane)
    unread.forget()
    assert len(unread) == 0
    stream.paused = False
    unread.put(frame(2, MAX_UNREAD_BYTES // 2))
    assert not stream.paused
