"""Heartbeats: whose silence ends a stream, and what a process does that stood still."""

import asyncio

import pytest
from wire_kit import HELD, LEASE, Ear, HandClock, half, pair, until

from antiphon.errors import PeerError
from antiphon.wire import Kind, encode


class Beat:
    """Heartbeats of one side, counted: the clock goes on only when one has come."""

    def __init__(self, ear: Ear, clock: HandClock) -> None:
        self.said = 0
        self._ear = ear
        self._clock = clock
        ear.stream.beat(0.001, 1.0, self._say)

    def _say(self) -> tuple[Kind, object]:
        self.said += 1
        return Kind.LEASE_HELD, HELD

    async def later(self, seconds: float) -> None:
        said = self.said
        self._clock.now += seconds
        await until(lambda: self.said > said or self._ear.over.is_set())


async def test_silence_ends_the_stream_after_its_limit_and_not_before(clock) -> None:
    owner, _other = await half(clock)
    beat = Beat(owner, clock)
    for _ in range(4):
        await beat.later(0.24)
    assert owner.stream.ending is None
    await beat.later(0.24)
    ending = await owner.ending()
    assert "nothing was heard for 1.20 s" in ending.reason
    assert not ending.stalled


async def test_heartbeats_keep_it_alive(clock) -> None:
    owner, taker = await pair(clock)
    Beat(owner, clock)
    taker.stream.beat(0.001, 1.0, lambda: (Kind.TAKE, LEASE))
    for _ in range(40):
        clock.now += 0.2
        for ear in (owner, taker):
            await ear.frame()
            await ear.frame()
    assert owner.stream.ending is None
    assert taker.stream.ending is None
    owner.stream.end("done")


async def test_a_paused_reader_does_not_take_its_own_deafness_for_silence(clock) -> None:
    owner, _other = await half(clock)
    beat = Beat(owner, clock)
    owner.stream.pause()
    for _ in range(20):
        await beat.later(0.2)
    assert owner.stream.ending is None
    owner.stream.resume()
    assert owner.stream.heard_at == clock.now
    owner.stream.end("done")


async def test_a_process_that_stood_still_acts_on_nothing_that_waits(clock) -> None:
    """A worker that was stopped and goes on finds its stream over before it reads from it."""
    owner, other = await half(clock)
    Beat(owner, clock)
    other.sendall(encode(Kind.TAKE, LEASE, 1))
    clock.now += 1.01
    ending = await owner.ending()
    assert ending.stalled
    assert "did not run for 1.01 s" in ending.reason
    assert owner.frames.empty()
    other.close()


async def test_nor_does_it_send_anything(clock) -> None:
    owner, _other = await half(clock)
    Beat(owner, clock)
    clock.now += 1.01
    with pytest.raises(PeerError, match="did not run"):
        owner.stream.send(Kind.LEASE_HELD, HELD)
    assert not owner.stream.alive()


async def test_a_short_stop_does_no_harm(clock) -> None:
    owner, other = await half(clock)
    Beat(owner, clock)
    other.sendall(encode(Kind.TAKE, LEASE, 1))
    clock.now += 0.9
    assert (await owner.frame()).kind == Kind.TAKE
    owner.stream.end("done")
    other.close()


async def test_a_heartbeat_that_finds_the_connection_broken_is_the_end_and_no_accident(
    clock,
) -> None:
    """Who has the stream hears of it; the loop, which would log a traceback each time, does not."""
    accidents: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: accidents.append(what))
    owner, taker = await pair(clock)
    assert owner.stream._transport is not None
    owner.stream._transport.close()
    owner.stream.beat(0.001, 1.0, lambda: (Kind.LEASE_HELD, HELD))
    assert (await owner.ending()).reason == "the connection broke"
    await taker.ending()
    assert accidents == []
