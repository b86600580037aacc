"""Requests whose workers refuse, are full, or are drained: they wait, or go elsewhere.

Cases that failed in other systems name them.
"""

from dataclasses import replace

import pytest
from attempt_kit import (
    ID,
    LEASE,
    D,
    E,
    P,
    Split,
    answer,
    finish,
    lose,
    pulled,
    refusal,
    request,
    split_router,
    token,
)
from fleet_kit import ScriptedRouter, book_of, hold, no_worker, offer_of, settle_of, worker_info

from antiphon.errors import BugError
from antiphon.types import (
    Abort,
    Admitted,
    Command,
    Deliver,
    Dispatch,
    Drained,
    Health,
    HealthChanged,
    Outcome,
    RejectReason,
    Release,
    Renew,
    RequestId,
    Started,
    WorkerId,
    WorkerJoined,
)


def test_a_refusal_is_no_failure_while_another_worker_has_room() -> None:
    book = book_of(ScriptedRouter(routes=[(None, "p"), (None, "d")]), "p", "d")
    book.start(request(), 0.0)
    (dispatch,) = book.heard(refusal(RejectReason.DRAINING), 1.0)
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.worker, dispatch.request.attempt) == (D, 2)
    assert book.heard(refusal(), 1.5) == (), "the first worker's word counts no more"
    assert book.heard(Admitted(request=ID, attempt=2), 2.0) == ()
    assert settle_of(finish(book, 0, 3.0, attempt=2)).record.attempts == 2


def test_when_all_workers_are_full_the_client_hears_it_at_once() -> None:
    book = book_of(ScriptedRouter(routes=[(None, "p"), (None, "d"), (None, "p")]), "p", "d")
    book.start(request(), 0.0)
    book.heard(refusal(), 1.0)
    settle = settle_of(book.heard(refusal(attempt=2), 2.0))
    assert settle.rejected == refusal(attempt=2)
    assert settle.record.outcome is Outcome.REJECTED


def test_a_held_request_is_asked_for_again_at_its_time_and_when_the_fleet_changes() -> None:
    router = ScriptedRouter(routes=[hold(5.0)])
    book = book_of(router, "p")
    assert book.start(request(deadline=30.0), 0.0) == ()
    assert (book.held, book.next_deadline()) == ((1, 0), 5.0)
    assert book.observe(WorkerJoined(worker_info("d")), 2.0) == ()
    router.routes = [hold(8.0)]
    assert book.due(5.0) == ()
    assert book.next_deadline() == 8.0
    router.routes = [(None, "d")]
    assert book.due(7.9) == ()
    assert isinstance(book.due(8.0)[0], Dispatch)
    assert book.next_deadline() == 30.0


def test_a_settled_request_makes_room_for_one_that_waits() -> None:
    router = ScriptedRouter(routes=[(None, "p"), hold(100.0)])
    book = book_of(router, "p")
    book.start(request(), 0.0)
    book.start(replace(request(), id=RequestId("r2")), 0.0)
    assert book.heard(token(0), 0.5) == (Deliver(token(0)),)
    router.routes = [(None, "p")]
    commands = finish(book, 1, 1.0)
    assert isinstance(commands[-1], Dispatch)
    assert commands[-1].request.id == "r2"


def test_a_computed_prompt_makes_room_for_one_that_waits() -> None:
    router = ScriptedRouter(routes=[(None, "p"), hold(100.0)])
    book = book_of(router, "p")
    book.start(request(), 0.0)
    book.start(replace(request(), id=RequestId("r2")), 0.0)
    router.routes = [(None, "p")]
    delivered, dispatched = book.heard(token(0), 1.0)
    assert delivered == Deliver(token(0))
    assert isinstance(dispatched, Dispatch)
    assert dispatched.request.id == "r2"
    assert book.heard(token(1), 1.0) == (Deliver(token(1)),)


def test_held_requests_go_by_class_then_deadline_then_arrival() -> None:
    router = ScriptedRouter(routes=[hold(100.0)])
    book = book_of(router, "p")
    shapes = {"a": (1, 4.0), "b": (1, 3.0), "c": (0, None), "d": (1, 4.0), "e": (0, 4.5)}
    for name, (priority, deadline) in shapes.items():
        asked = replace(request(), id=RequestId(name), priority=priority, deadline=deadline)
        book.start(asked, 0.0)
    router.routes = [(None, "p")]
    commands = book.observe(WorkerJoined(worker_info("d")), 1.0)
    assert [c.request.id for c in commands if isinstance(c, Dispatch)] == ["e", "c", "b", "a", "d"]


def test_a_new_request_does_not_overtake_those_that_wait() -> None:
    router = ScriptedRouter(routes=[hold(100.0)])
    book = book_of(router, "p")
    book.start(request(), 0.0)
    router.routes = [(None, "p")]
    assert book.start(replace(request(), id=RequestId("r2")), 1.0) == ()
    first = replace(request(), id=RequestId("r3"), priority=-1)
    assert isinstance(book.start(first, 1.0)[0], Dispatch)


def test_only_so_many_requests_wait() -> None:
    router = ScriptedRouter(routes=[hold(100.0)])
    book = book_of(router, "p", max_held=1)
    assert book.start(request(), 0.0) == ()
    settle = settle_of(book.start(replace(request(), id=RequestId("r2")), 0.0))
    assert settle.rejected is not None
    assert settle.rejected.reason is RejectReason.QUEUE_FULL
    assert book.held == (1, 0)


def test_a_held_request_ends_at_its_deadline() -> None:
    book = book_of(ScriptedRouter(routes=[hold(100.0)]), "p")
    book.start(request(deadline=9.0), 0.0)
    assert settle_of(book.due(9.0)).record.outcome is Outcome.DEADLINE
    assert book.next_deadline() is None


def test_a_long_queue_is_not_asked_for_from_end_to_end() -> None:
    router = ScriptedRouter(routes=[hold(100.0)])
    book = book_of(router, "p")
    for number in range(200):
        book.start(replace(request(), id=RequestId(f"r{number}")), 0.0)
    router.calls.clear()
    book.observe(WorkerJoined(worker_info("d")), 1.0)
    assert len(router.calls) == 16


# ── drains ───────────────────────────────────────────────────────────────────────────────────────


def test_a_drained_worker_finishes_what_it_has() -> None:
    case = Split().decoding()
    assert case.book.drain(D, 60.0, 6.0) == ()
    assert case.router.seen[-1] == HealthChanged(D, Health.DRAINING)
    assert case.book.next_deadline() == 60.0
    commands = finish(case.book, 1, 7.0)
    assert commands[-1] == Drained(D)
    assert case.book.next_deadline() is None


def test_what_does_not_finish_in_time_is_moved() -> None:
    case = Split().decoding()
    case.book.drain(D, 60.0, 6.0)
    case.router.routes = [(None, "e")]
    abort, dispatch, drained = case.book.due(60.0)
    assert abort == Abort(ID, 1, D)
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.worker, dispatch.request.attempt) == (E, 2)
    assert drained == Drained(D)
    record = settle_of(finish(case.book, 1, 61.0, attempt=2)).record
    assert record.attempts == 2


def test_a_drained_owner_gives_its_offer_up_in_time() -> None:
    case = Split().offered()
    case.book.drain(P, 60.0, 6.0)
    case.router.routes = [("q", "d")]
    commands: list[Command] = []
    while (at := case.book.next_deadline()) is not None and at <= 60.0:
        commands = [c for c in case.book.due(at) if not isinstance(c, Renew)]
    assert commands[0] == Release(owner=P, lease=LEASE)
    assert isinstance(commands[1], Dispatch)
    assert commands[-1] == Drained(P)


def test_an_empty_or_dead_worker_is_drained_at_once() -> None:
    router = ScriptedRouter(routes=[(None, "p")])
    book = book_of(router, "p", "d")
    assert book.drain(WorkerId("nobody"), 9.0, 0.0) == (Drained(WorkerId("nobody")),)
    assert book.drain(D, 9.0, 0.0) == (Drained(D),)
    book.start(request(), 1.0)
    book.drain(P, 9.0, 2.0)
    book.observe(HealthChanged(P, Health.JOINED), 2.5)
    assert book.next_deadline() == 9.0, "a heartbeat does not end a drain"
    router.routes = [no_worker()]
    assert Drained(P) in lose(book, "p", 3.0)


def test_a_router_that_chooses_who_takes_nothing_is_a_bug() -> None:
    router = ScriptedRouter(routes=[(None, "p")])
    book = book_of(router, "p")
    book.drain(P, 9.0, 0.0)
    with pytest.raises(BugError, match="the router chose p"):
        book.start(request(), 1.0)


# ── numerics ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("other", "exact"), [("scripted", True), ("another chip", False)])
def test_tokens_of_two_kinds_of_numbers_are_on_record(other: str, exact: bool) -> None:
    router = ScriptedRouter(routes=[(None, "p"), (None, "x")])
    book = book_of(router, "p", worker_info("x", numerics=other))
    book.start(request(), 0.0)
    book.heard(token(0), 1.0)
    lose(book, "p", 2.0)
    book.heard(token(1, attempt=2), 2.5)
    assert settle_of(finish(book, 2, 3.0, attempt=2)).record.exact is exact


@pytest.mark.parametrize(("other", "exact"), [("scripted", True), ("another chip", False)])
def test_kv_of_another_kind_of_numbers_is_on_record(other: str, exact: bool) -> None:
    book = book_of(split_router(), "p", worker_info("d", numerics=other))
    asked = request()
    book.start(asked, 0.0)
    book.heard(token(0), 1.0)
    book.heard(offer_of(asked, worker_info("p")), 2.0)
    book.heard(answer(), 3.0)
    book.heard(pulled(), 4.0)
    assert settle_of(finish(book, 1, 5.0)).record.exact is exact


def test_an_attempt_that_gave_nothing_leaves_no_trace_in_the_numbers() -> None:
    router = ScriptedRouter(routes=[(None, "p"), (None, "x")])
    book = book_of(router, "p", worker_info("x", numerics="another chip"))
    book.start(request(), 0.0)
    lose(book, "p", 2.0)
    book.heard(Started(request=ID, attempt=2, cached_tokens=0, queued_s=0.0), 2.5)
    book.heard(token(0, attempt=2), 2.7)
    assert settle_of(finish(book, 1, 3.0, attempt=2)).record.exact is True
