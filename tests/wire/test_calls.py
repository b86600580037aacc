"""An answer reaches the call that it belongs to, or nobody."""

import asyncio
import socket
import time

import pytest
from wire_kit import Ear, on_socket, until

from antiphon.errors import PeerError
from antiphon.types import LeaseHeld, LeaseId, LeaseRefusal, LeaseRefused, RenewAnswered, TakenLease
from antiphon.wire import TO_OWNER, TO_TAKER, Calls, Kind, decode
from antiphon.wire import calls as calls_module

ANSWERS = (Kind.LEASE_HELD, Kind.LEASE_REFUSED)


async def pair(timeout_s: float = 10.0) -> tuple[Ear, Ear, Calls]:
    """An owner that the test speaks for, and a taker's calls."""
    one, other = socket.socketpair()
    owner = await on_socket(one, TO_OWNER, time.monotonic)
    taker = await on_socket(other, TO_TAKER, time.monotonic)
    calls = Calls(taker.stream, "owner w", timeout_s=timeout_s)
    taker.stream.on_frame = calls.answered
    taker.stream.on_end = lambda ending: (calls.fail(ending.reason), taker._ended(ending))[0]
    return owner, taker, calls


def take(calls: Calls, name: str) -> asyncio.Task:
    lease = LeaseId(name)
    return asyncio.create_task(calls.call(Kind.TAKE, TakenLease(lease, 1), ANSWERS, lease))


async def test_answers_in_any_order() -> None:
    owner, _, calls = await pair()
    waiting = {name: take(calls, name) for name in "abc"}
    asked = [await owner.frame() for _ in "abc"]
    assert len({frame.number for frame in asked} - {0}) == 3
    for frame in reversed(asked):
        owner.stream.send(Kind.LEASE_HELD, LeaseHeld(decode(frame).lease), frame.number)
    for name, call in waiting.items():
        assert await asyncio.wait_for(call, 10) == LeaseHeld(LeaseId(name))
    owner.stream.end("done")


async def test_a_late_answer_is_dropped() -> None:
    owner, taker, calls = await pair(timeout_s=0.01)
    with pytest.raises(PeerError, match=r"owner w did not answer within 0.01 s"):
        await take(calls, "a")
    frame = await owner.frame()
    owner.stream.send(Kind.LEASE_HELD, LeaseHeld(LeaseId("a")), frame.number)
    owner.stream.send(Kind.LEASE_HELD, LeaseHeld(LeaseId("b")), 99)
    again = take(calls, "c")
    frame = await owner.frame()
    owner.stream.send(
        Kind.LEASE_REFUSED, LeaseRefused(LeaseId("c"), LeaseRefusal.GONE), frame.number
    )
    assert (await asyncio.wait_for(again, 10)).reason is LeaseRefusal.GONE
    assert taker.stream.ending is None
    owner.stream.end("done")


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (Kind.LEASE_HELD, LeaseHeld(LeaseId("other"))),
        (Kind.RENEW_ANSWERED, RenewAnswered()),
    ],
)
async def test_an_answer_that_fits_no_question_ends_the_stream(kind, answer) -> None:
    owner, taker, calls = await pair()
    waiting = take(calls, "a")
    owner.stream.send(kind, answer, (await owner.frame()).number)
    with pytest.raises(PeerError, match="answer"):
        await asyncio.wait_for(waiting, 10)
    assert (await taker.ending()).failure is not None


async def test_the_end_of_the_stream_fails_all_who_wait() -> None:
    owner, _, calls = await pair()
    waiting = [take(calls, name) for name in "abc"]
    await owner.frame()
    owner.stream.end("killed")
    for call in waiting:
        with pytest.raises(PeerError, match="owner w: the other side closed it"):
            await asyncio.wait_for(call, 10)
    with pytest.raises(PeerError, match="closed it"):
        await take(calls, "d")


async def test_a_cancelled_call_leaves_nothing_behind(monkeypatch) -> None:
    monkeypatch.setattr(calls_module, "MAX_CALLS", 1)
    owner, _, calls = await pair()
    waiting = take(calls, "a")
    await owner.frame()
    assert calls.full
    with pytest.raises(PeerError, match="unanswered"):
        await take(calls, "b")
    waiting.cancel()
    await until(lambda: not calls.full)
    owner.stream.end("done")


async def test_numbers_go_round_without_meeting_a_call_that_waits() -> None:
    owner, _, calls = await pair()
    first = take(calls, "a")
    one = await owner.frame()
    calls._number = calls_module.MAX_NUMBER - 1
    others = [take(calls, name) for name in "bc"]
    numbers = [(await owner.frame()).number for _ in others]
    assert numbers == [calls_module.MAX_NUMBER, one.number + 1]
    for call in (first, *others):
        call.cancel()
    owner.stream.end("done")


async def test_an_answer_that_was_given_up_is_dropped() -> None:
    owner, taker, calls = await pair()
    given_up = calls.ask(Kind.TAKE, TakenLease(LeaseId("a"), 1), ANSWERS, "a")
    frame = await owner.frame()
    given_up.cancel()
    owner.stream.send(Kind.LEASE_HELD, LeaseHeld(LeaseId("a")), frame.number)
    again = take(calls, "b")
    frame = await owner.frame()
    owner.stream.send(Kind.LEASE_HELD, LeaseHeld(LeaseId("b")), frame.number)
    assert await asyncio.wait_for(again, 10) == LeaseHeld(LeaseId("b"))
    assert taker.stream.ending is None
    owner.stream.end("done")


async def test_what_can_t_be_sent_is_not_waited_for() -> None:
    owner, taker, calls = await pair()
    taker.stream.end("gone")
    with pytest.raises(PeerError, match="gone"):
        calls.ask(Kind.TAKE, TakenLease(LeaseId("a"), 1), ANSWERS, "a")
    await until(lambda: not calls._calls)
    owner.stream.end("done")
