"""Early rejection at the book: who is refused when, and what is left of it."""

from dataclasses import replace

from fleet_kit import ScriptedRouter, book_of, hold, settle_of

from antiphon.types import (
    Deliver,
    Dispatch,
    Outcome,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    SamplingParams,
    TokenGenerated,
    WorkerId,
)

ID, SECOND = RequestId("r1"), RequestId("r2")


def request() -> Request:
    return Request(id=ID, prompt=(1, 2, 3), sampling=SamplingParams(max_tokens=9, seed=0))


def vain(id: RequestId) -> dict[RequestId, Rejected]:
    reason = RejectReason.TTFT_UNREACHABLE
    return {id: Rejected(request=id, reason=reason, message="busy", retry_after_s=7.0)}


def test_a_new_request_is_refused_before_a_worker_has_it() -> None:
    router = ScriptedRouter(routes=[(None, "p")], vain=vain(ID))
    book = book_of(router, "p")
    settle = settle_of(book.start(request(), 0.0))
    assert settle.record.outcome is Outcome.REJECTED
    assert settle.rejected is not None
    assert settle.rejected.reason is RejectReason.TTFT_UNREACHABLE
    assert settle.rejected.retry_after_s == 7.0
    assert not router.asked, "no worker was looked for"
    assert len(book) == 0
    assert book.held == (0, 0)


def test_one_that_would_wait_is_refused_at_once_by_what_is_before_it() -> None:
    router = ScriptedRouter(routes=[hold(100.0)])
    book = book_of(router, "p")
    assert book.start(request(), 0.0) == ()
    router.vain = vain(SECOND)
    settle = settle_of(book.start(replace(request(), id=SECOND), 0.0))
    assert settle.rejected is not None
    assert router.ahead[-1] == (SECOND, 1, len(request().prompt))
    assert book.held == (1, 0)


def test_one_that_waits_is_refused_when_it_has_become_vain() -> None:
    router = ScriptedRouter(routes=[hold(1.0)])
    book = book_of(router, "p")
    assert book.start(request(), 0.0) == ()
    router.vain = vain(ID)
    assert settle_of(book.due(1.0)).rejected is not None
    assert book.held == (0, 0)
    assert book.next_deadline() is None


def test_nobody_is_refused_of_whom_something_was_delivered() -> None:
    router = ScriptedRouter(routes=[(None, "p")])
    book = book_of(router, "p", "q")
    book.start(request(), 0.0)
    token = TokenGenerated(request=ID, attempt=1, sequence=0, index=0, token=7)
    assert book.heard(token, 0.0) == (Deliver(token),)
    router.vain, router.routes = vain(ID), [(None, "q")]
    commands = book.drain(WorkerId("p"), 0.0, 0.0)
    again = [one for one in commands if isinstance(one, Dispatch)]
    assert [one.request.attempt for one in again] == [2], "it goes on elsewhere"
