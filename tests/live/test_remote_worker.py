"""A worker behind a socket is a `WorkerLink` like any other, until its stream is over."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest
from link_kit import (
    WELCOME,
    Door,
    PuppetWorker,
    ended,
    ends,
    next_batch,
    offer,
    port,
    request,
    token,
    until,
    worker_info,
)

from antiphon.errors import BugError, PeerError
from antiphon.live import remote_worker, unread, worker_port
from antiphon.live.remote_worker import RemoteWorker
from antiphon.types import (
    Aborted,
    Admitted,
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    Rejected,
    RejectReason,
    RequestId,
    Role,
    Stage,
    Started,
    Unknown,
    WorkerId,
)
from antiphon.wire import stream as stream_module

pytestmark = pytest.mark.timeout(60)
LEASE = LeaseId("lease")


async def test_every_call_reaches_the_worker_and_its_answer_comes_back(folder, worker) -> None:
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        assert link.info == worker.info
        one, two = request("one"), request("two", attempt=2, resumed=((7, 8),), n=1)
        assert await link.add(one, Stage.PREFILL) == Admitted(request=one.id)
        assert await link.adopt(two, offer(two)) == Admitted(request=two.id, ahead=1, attempt=2)
        assert await link.abort(one.id, 1, 0) == Aborted(request=one.id, sequences=(0,))
        assert await link.abort(one.id, 9) == Unknown(request=one.id)
        assert await link.grant(LEASE, Incarnation("other"), 3) == LeaseHeld(LEASE)
        await link.renew([LEASE])
        await link.release(LEASE)
        await link.set_role(Role.DECODE)
        assert link.info.role is worker.info.role is Role.DECODE
    (added, stage), (adopted, offered) = worker.calls("add")[0], worker.calls("adopt")[0]
    assert (added.id, added.prompt, stage) == (one.id, one.prompt, Stage.PREFILL)
    assert (adopted.id, adopted.attempt, adopted.resumed) == (two.id, 2, ((7, 8),))
    assert offered == offer(two)
    assert worker.calls("grant") == [(LEASE, Incarnation("other"), 3)]
    assert worker.calls("renew") == [((LEASE,),)]
    assert worker.calls("release") == [(LEASE,)]


async def test_a_refusal_comes_back_whole(folder, worker) -> None:
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        worker.refuse = Rejected(
            request=request().id,
            reason=RejectReason.TOO_LONG,
            message="shorten it",
            field="prompt",
            retry_after_s=1.5,
        )
        assert await link.add(request()) == worker.refuse


async def test_deadlines_cross_as_what_is_left(folder, worker) -> None:
    def other_clock() -> float:
        return time.monotonic() - 5000

    async with Door(folder) as door, port(worker, door.path, clock=other_clock):
        link = await door.link()
        now = time.monotonic()
        await link.add(request(deadline=now + 30, arrived_at=now - 2))
        added = worker.calls("add")[0][0]
        assert added.deadline == pytest.approx(now + 30 - 5000, abs=5)
        assert added.arrived_at == pytest.approx(now - 2 - 5000, abs=5)


async def test_events_come_in_order(folder, worker) -> None:
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        one = request(n=2)
        await link.add(one)
        started = Started(request=one.id, attempt=1, cached_tokens=0, queued_s=0.0)
        first = [started, token(one, 0), token(one, 0, 1)]
        second = [ended(one), token(one, 1, 1), ended(one, 1)]
        worker.say(*first)
        worker.say(*second)
        reader = link.events()
        got: list = []
        while len(got) < 6:
            got += await next_batch(reader)
        assert got == first + second


async def test_only_events_of_what_was_taken_are_passed_on(folder, worker) -> None:
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        one = request()
        await link.add(one)
        old, foreign = replace(one, attempt=7), request("foreign")
        worker.say(token(foreign, 0), token(old, 0), token(one, 0), ended(one), token(one, 1))
        assert await next_batch(link.events()) == [token(one, 0), ended(one)]


async def test_an_offer_is_the_last_word_about_a_request(folder, worker) -> None:
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        one = request()
        await link.add(one, Stage.PREFILL)
        worker.say(token(one, 0), offer(one))
        worker.say(token(one, 1))
        worker.say(offer(one))
        two = request("two")
        await link.add(two)
        worker.say(token(two, 0))
        reader = link.events()
        assert await next_batch(reader) == [token(one, 0), offer(one)]
        assert await next_batch(reader) == [token(two, 0)]


async def test_a_repeated_id_that_is_refused_leaves_the_first_alone(folder, worker) -> None:
    """Duplicate ids must not crash either side, nor cut off the request that runs."""
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        one = request()
        await link.add(one)
        worker.refuse = Rejected(request=one.id, reason=RejectReason.DUPLICATE, message="twice")
        again = await link.add(replace(one, attempt=2))
        assert isinstance(again, Rejected)
        assert again.attempt == 2
        worker.say(token(one, 0))
        assert await next_batch(link.events()) == [token(one, 0)]


async def test_reports_keep_coming_while_an_engine_blocks_a_thread(folder, worker) -> None:
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        go_on = threading.Event()
        engine = asyncio.create_task(asyncio.to_thread(go_on.wait))
        try:
            for name in "abc":
                worker.running[RequestId(name)] = request(name)
                await until(lambda: link.view() == worker.view())
            assert link.view().running == 3
            assert not engine.done()
        finally:
            go_on.set()
            await engine


async def test_steps_report_but_not_each(folder, worker, monkeypatch) -> None:
    now = 0.0
    monkeypatch.setattr(worker_port, "REPORT_EVERY_S", 3.5)

    def clock() -> float:
        return now

    welcome = replace(WELCOME, heartbeat_s=500.0, lost_after_s=1000.0)
    async with Door(folder, welcome=welcome) as door, port(worker, door.path, clock=clock):
        link = await door.link()
        one = request()
        await link.add(one)
        reader = link.events()
        seen = [link.view().steps_total]
        for index in range(12):
            now += 1.0
            worker.say(token(one, index))
            await next_batch(reader)
            await link.abort(RequestId("another"), 1)  # its answer comes after a report
            seen.append(link.view().steps_total)
        assert seen == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12]


async def test_a_worker_that_went_away_fails_what_waits_and_has_nothing(folder, worker) -> None:
    async with Door(folder) as door:
        async with port(worker, door.path):
            link = await door.link()
            one = request()
            await link.add(one)
            worker.say(token(one, 0))
            await until(lambda: bool(link._unread))
            worker.hold = asyncio.Event()
            waiting = asyncio.create_task(link.add(request("two")))
            await until(lambda: len(worker.calls("add")) == 2)
        with pytest.raises(PeerError, match="worker w0"):
            await asyncio.wait_for(waiting, 10)
        reader = link.events()
        assert await next_batch(reader) == [token(one, 0)]
        assert "worker w0: the other side closed it" in await ends(reader)
        assert (await rejected(link)).reason is RejectReason.DRAINING
        assert await link.abort(one.id, 1) == Unknown(request=one.id)
        gone = LeaseRefused(LEASE, LeaseRefusal.GONE)
        assert await link.grant(LEASE, Incarnation("x"), 1) == gone
        await link.renew([LEASE])
        await link.release(LEASE)
        with pytest.raises(PeerError):
            await link.set_role(Role.MIXED)


async def rejected(link: RemoteWorker) -> Rejected:
    answer = await link.add(request("more", attempt=4))
    assert isinstance(answer, Rejected)
    assert answer.attempt == 4
    return answer


async def test_an_add_that_is_given_up_is_aborted(folder, worker) -> None:
    """Deadline at every hop: whoever stops waiting also stops the work."""
    async with Door(folder, call_timeout_s=0.05) as door, port(worker, door.path):
        link = await door.link()
        worker.hold = asyncio.Event()
        late, cancelled = request("late"), request("cancelled")
        with pytest.raises(PeerError, match=r"did not answer within 0.05 s"):
            await link.add(late)
        task = asyncio.create_task(link.add(cancelled))
        await until(lambda: len(worker.calls("add")) == 2)
        task.cancel()
        await until(lambda: len(worker.calls("abort")) == 2)
        assert {call[:2] for call in worker.calls("abort")} == {(late.id, 1), (cancelled.id, 1)}
        worker.hold.set()
        worker.hold = None
        assert await link.add(request("next")) == Admitted(request=request("next").id, ahead=2)


async def test_nothing_is_lost_when_the_gateway_reads_slowly(folder, worker, monkeypatch) -> None:
    monkeypatch.setattr(unread, "MAX_UNREAD_BYTES", 10_000)
    async with Door(folder) as door, port(worker, door.path) as serving:
        link = await door.link()
        one = request()
        await link.add(one)
        events = [token(one, index) for index in range(40_000)]
        for start in range(0, len(events), 8):
            worker.say(*events[start : start + 8])
        await until(lambda: link._stream._paused)
        await until(lambda: not serving.stream._room.is_set())
        reads = worker.reads
        assert reads < 5000, "the worker ran ahead of a reader that did not read"
        got: list = []
        reader = link.events()
        while len(got) < len(events):
            got += await next_batch(reader)
        assert got == events
        assert isinstance(await link.abort(one.id, 1), Aborted)


async def test_a_worker_that_does_not_read_loses_its_stream_and_nobody_else(
    folder, worker, monkeypatch
) -> None:
    """A peer's failure never makes a healthy one wait."""
    monkeypatch.setattr(remote_worker, "MAX_UNSENT_REQUEST_BYTES", 100_000)
    monkeypatch.setattr(stream_module, "MAX_UNSENT_BYTES", 500_000)
    healthy = PuppetWorker(worker_info("w1"))
    long = request("long", prompt=(70_000,) * 50_000)
    async with Door(folder) as door, port(worker, door.path) as serving:
        stuck = await door.link(0)
        async with port(healthy, door.path):
            link = await door.link(1)
            serving.stream.pause()
            waiting = [asyncio.create_task(stuck.add(replace(long, id=f"{i}"))) for i in range(3)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert (await rejected(stuck)).reason is RejectReason.QUEUE_FULL
            assert isinstance(await link.add(request()), Admitted)
            for _ in range(20_000):
                await stuck.release(LEASE)
            assert "does not read" in await ends(stuck.events())
            assert isinstance(await link.add(request("more")), Admitted)
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(result) for result in results} <= {PeerError, Rejected}


async def test_a_message_for_somebody_else_ends_the_stream(folder, worker) -> None:
    async with Door(folder) as door, port(worker, door.path) as serving:
        link = await door.link()
        link._info = replace(link._info, id=WorkerId("w9"))
        with pytest.raises(PeerError):
            await link.add(request())
        await until(lambda: len(serving.lives.left) >= 1)
        assert worker.calls("add") == []
        link = await door.link(1)
        assert isinstance(await link.add(request()), Admitted)


async def test_a_broken_law_in_the_worker_ends_its_port(folder, worker) -> None:
    async with Door(folder) as door, port(worker, door.path) as serving:
        link = await door.link()
        worker.fail = BugError("two pages are one")
        with pytest.raises(PeerError):
            await link.add(request())
        with pytest.raises(BugError, match="two pages are one"):
            await asyncio.wait_for(serving.run, 10)


async def test_a_peer_that_failed_inside_the_worker_ends_one_call_only(folder, worker) -> None:
    """A peer's death never makes a healthy worker unhealthy."""
    async with Door(folder, call_timeout_s=0.1) as door, port(worker, door.path):
        link = await door.link()
        worker.fail = PeerError("the owner is gone")
        with pytest.raises(PeerError, match="did not answer"):
            await link.add(request())
        worker.fail = None
        assert isinstance(await link.add(request("next")), Admitted)


async def test_a_worker_that_stops_says_its_last_events(folder, worker) -> None:
    async with Door(folder) as door, port(worker, door.path) as serving:
        link = await door.link()
        one = request()
        await link.add(one)
        worker.say(token(one, 0), ended(one))
        worker.stop()
        reader = link.events()
        assert await next_batch(reader) == [token(one, 0), ended(one)]
        await ends(reader)
        await asyncio.wait_for(serving.run, 10)
