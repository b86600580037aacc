"""What both ends do when their stream breaks, falls silent, lies, or one of them stood still."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from link_kit import (
    WELCOME,
    Door,
    PuppetWorker,
    ended,
    port,
    request,
    token,
    until,
)

from antiphon.errors import PeerError
from antiphon.live.remote_worker import RemoteWorker
from antiphon.testing.faulty_relay import (
    Cut,
    Delay,
    Drop,
    Duplicate,
    Fault,
    FaultyRelay,
    Pass,
    Passing,
    Way,
)
from antiphon.types import Admitted, Event
from antiphon.wire import Kind

pytestmark = pytest.mark.timeout(60)
QUICK = replace(WELCOME, heartbeat_s=0.02, lost_after_s=1.0)


class Skew:
    """A monotonic clock that can jump, as if the process had stood still meanwhile."""

    def __init__(self) -> None:
        self.jumped = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.jumped


async def read_to_end(link: RemoteWorker) -> tuple[list[Event], str]:
    got: list[Event] = []
    with pytest.raises(PeerError) as found:
        async with asyncio.timeout(20):
            async for batch in link.events():
                got += batch
    return got, str(found.value)


async def test_a_gateway_that_goes_ends_all_it_gave_and_the_next_finds_a_new_life(
    folder, worker
) -> None:
    async with Door(folder) as door:
        serving = port(worker, door.path)
        life = await serving.__aenter__()
        link = await door.link()
        await link.add(request("one"))
        await link.add(request("two", attempt=3, n=2))
    await until(lambda: len(life.lives.left) >= 1)
    assert not any(life.lives.left), "all requests are aborted before the next life begins"
    assert {call[:2] for call in worker.calls("abort")} == {("one", 1), ("two", 3)}
    async with Door(folder) as door:
        link = await door.link()
        assert link.info.incarnation != "life-1"
        assert isinstance(await link.add(request("one", attempt=2)), Admitted)
        await serving.__aexit__(None, None, None)


async def test_what_an_old_life_still_says_reaches_nobody(folder, worker) -> None:
    """A life that is over speaks no more, even where the same request came back to it."""
    async with Door(folder) as door, port(worker, door.path) as serving:
        link = await door.link(0)
        old, new = request(attempt=1), request(attempt=2)
        await link.add(old)
        serving.stream.end("cut")
        worker.say(token(old, 0))
        link = await door.link(1)
        worker.say(token(old, 1))
        await link.add(new)
        worker.say(token(old, 2), token(new, 0), ended(old), ended(new))
        got: list[Event] = []
        async for batch in link.events():
            got += batch
            if len(got) >= 2:
                break
        assert got == [token(new, 0), ended(new)]


async def test_ended_requests_are_not_aborted_again(folder, worker) -> None:
    async with Door(folder) as door, port(worker, door.path) as serving:
        link = await door.link(0)
        one, two, three = request("one", n=2), request("two", n=2, done=(1,)), request("three")
        for each in (one, two, three):
            await link.add(each)
        await link.abort(one.id, 1, 0)
        worker.say(ended(one, 1), ended(two, 0))
        await anext(link.events())
        before = len(worker.calls("abort"))
        serving.stream.end("cut")
        await door.link(1)
        assert [call[0] for call in worker.calls("abort")[before:]] == [three.id]


async def test_a_worker_that_was_stopped_too_long_acts_on_nothing_it_finds(folder, worker) -> None:
    """It was declared lost meanwhile: what waits in its socket is not for its next life."""
    clock = Skew()
    async with Door(folder) as door, port(worker, door.path, clock=clock) as serving:
        link = await door.link(0)
        await link.add(request("before"))
        serving.stream.pause()
        waiting = asyncio.create_task(link.add(request("meanwhile")))
        await asyncio.sleep(0)
        clock.jumped = WELCOME.lost_after_s + 1
        serving.stream.resume()
        with pytest.raises(PeerError):
            await asyncio.wait_for(waiting, 10)
        assert (await door.link(1)).info.incarnation == "life-2"
        assert [call[0].id for call in worker.calls("add")] == ["before"]
        assert [call[0] for call in worker.calls("abort")] == ["before"]


async def test_nor_does_it_send_what_it_has_computed(folder, worker) -> None:
    clock = Skew()
    async with Door(folder) as door, port(worker, door.path, clock=clock):
        link = await door.link(0)
        one = request()
        await link.add(one)
        clock.jumped = WELCOME.lost_after_s + 1
        worker.say(token(one, 0))
        got, _ = await read_to_end(link)
        assert got == []


async def test_a_gateway_that_was_stopped_too_long_believes_nothing_it_finds(
    folder, worker
) -> None:
    clock = Skew()
    async with Door(folder, clock=clock) as door, port(worker, door.path):
        link = await door.link(0)
        one = request()
        await link.add(one)
        worker.say(token(one, 0))
        await until(lambda: bool(link._unread))
        clock.jumped = WELCOME.lost_after_s + 1
        got, reason = await read_to_end(link)
        assert got == []
        assert "this process did not run" in reason
        await door.link(1)


class Relayed:
    """Door, relay and port in a row."""

    def __init__(self, folder: Path, worker: PuppetWorker, plan, **door) -> None:
        self.door = Door(folder, **door)
        self.relay = FaultyRelay(folder / "relay.sock", self.door.path, plan)
        self._port = port(worker, folder / "relay.sock")

    async def __aenter__(self) -> "Relayed":
        await self.door.__aenter__()
        await self.relay.start()
        self.serving = await self._port.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._port.__aexit__(None, None, None)
        await self.relay.close()
        await self.door.__aexit__()


@pytest.mark.parametrize("way", Way)
async def test_silence_one_way_ends_both_sides(folder, worker, way: Way) -> None:
    """Each side finds out by itself; it needs nothing from the other for that."""
    beats = Kind.REPORT if way is Way.TO_GATEWAY else Kind.HEARTBEAT

    first = True

    def plan(passing: Passing) -> Fault:
        """All beats but the first of each life, which says that it has joined."""
        nonlocal first
        if passing.kind == Kind.HELLO:
            first = True
        if (passing.way, passing.kind) != (way, beats):
            return Pass()
        was_first, first = first, False
        return Pass() if was_first else Drop()

    async with Relayed(folder, worker, plan, welcome=QUICK) as row:
        link = await row.door.link(0)
        await link.add(request())
        _, reason = await read_to_end(link)
        if way is Way.TO_GATEWAY:
            assert "nothing was heard for" in reason
        else:
            assert "closed it" in reason
        assert (await row.door.link(1)).info.incarnation != "life-1"
        assert row.relay.done, "the fault did not happen"
        assert worker.calls("abort") == [(request().id, 1, None)]


async def test_pieces_and_delays_change_nothing(folder, worker) -> None:
    def plan(passing: Passing) -> Fault:
        if passing.kind == Kind.EVENTS and passing.number % 3 == 0:
            return Delay(0.01)
        return Pass(piece_bytes=7)

    async with Relayed(folder, worker, plan) as row:
        link = await row.door.link(0)
        one = request()
        await link.add(one)
        said = [token(one, index) for index in range(50)]
        for event in said:
            worker.say(event)
        got: list[Event] = []
        reader = link.events()
        while len(got) < 50:
            got += await asyncio.wait_for(anext(reader), 10)
        assert got == said


async def test_a_repeated_answer_is_dropped(folder, worker) -> None:
    def plan(passing: Passing) -> Fault:
        return Duplicate() if passing.kind == Kind.ADMITTED else Pass()

    async with Relayed(folder, worker, plan) as row:
        link = await row.door.link(0)
        for name in "abc":
            assert isinstance(await link.add(request(name)), Admitted)
        assert len(row.relay.done) == 3


async def test_a_dropped_answer_fails_its_call_alone_and_stops_the_work(folder, worker) -> None:
    dropped: list[Passing] = []

    def plan(passing: Passing) -> Fault:
        if passing.kind == Kind.ADMITTED and not dropped:
            dropped.append(passing)
            return Drop()
        return Pass()

    async with Relayed(folder, worker, plan, call_timeout_s=0.3) as row:
        link = await row.door.link(0)
        with pytest.raises(PeerError, match="did not answer"):
            await link.add(request("a"))
        assert isinstance(await link.add(request("b")), Admitted)
        assert worker.calls("abort") == [(request("a").id, 1, None)]


@pytest.mark.parametrize("after_bytes", range(0, 24))
@pytest.mark.parametrize("kind", [Kind.EVENTS, Kind.ADMITTED, Kind.DISPATCH])
async def test_a_message_cut_anywhere_is_no_message(folder, worker, kind, after_bytes) -> None:
    """Half a write is never acted on; the request goes on in a next attempt, in a next life."""
    cut: list[Passing] = []

    def plan(passing: Passing) -> Fault:
        if passing.kind == kind and not cut:
            cut.append(passing)
            return Cut(after_bytes)
        return Pass()

    async with Relayed(folder, worker, plan) as row:
        link = await row.door.link(0)
        one = request()
        if kind is Kind.EVENTS:
            await link.add(one)
            worker.say(token(one, 0))
        else:
            with pytest.raises(PeerError):
                await link.add(one)
        got, _ = await read_to_end(link)
        assert got == []
        link = await row.door.link(1)
        assert worker.running == {}, "an old life's request was left running"
        again = replace(one, attempt=2)
        await link.add(again)
        worker.say(token(again, 0))
        assert await anext(link.events()) == [token(again, 0)]
        assert len(cut) == 1
