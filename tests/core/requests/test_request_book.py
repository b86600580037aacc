from collections.abc import Sequence
from dataclasses import replace

import pytest
from fleet_kit import worker_info

from antiphon.core.requests import DropReason, RequestBook, SoleWorker
from antiphon.errors import BugError
from antiphon.types import (
    Abort,
    Admitted,
    AttemptRecord,
    Command,
    Deliver,
    Dispatch,
    EndSequence,
    FinishReason,
    Health,
    HealthChanged,
    Outcome,
    Preempted,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    RequestRecord,
    SamplingParams,
    SequenceEnded,
    Settle,
    Started,
    TokenGenerated,
    WorkerId,
    WorkerJoined,
)

WORKER = WorkerId("w0")
ID = RequestId("r1")
EOS = 2


def request(n: int = 1, deadline: float | None = None, max_tokens: int = 100) -> Request:
    sampling = SamplingParams(n=n, max_tokens=max_tokens, seed=0)
    return Request(
        id=ID, prompt=(1, 2, 3), sampling=sampling, eos_token_ids=(EOS,), deadline=deadline
    )


def token(index: int, sequence: int = 0, attempt: int = 1) -> TokenGenerated:
    return TokenGenerated(
        request=ID, attempt=attempt, sequence=sequence, index=index, token=index + 10
    )


def last(index: int, sequence: int = 0) -> TokenGenerated:
    return TokenGenerated(request=ID, attempt=1, sequence=sequence, index=index, token=EOS)


def ended(sequence: int = 0, reason: FinishReason = FinishReason.STOP) -> SequenceEnded:
    return SequenceEnded(request=ID, attempt=1, sequence=sequence, reason=reason)


def refused(reason: RejectReason = RejectReason.QUEUE_FULL) -> Rejected:
    return Rejected(request=ID, reason=reason, message="come back later", retry_after_s=1.0)


def end(sequence: int, reason: FinishReason, message: str = "") -> EndSequence:
    return EndSequence(request=ID, sequence=sequence, reason=reason, message=message)


def settled(commands: Sequence[Command]) -> RequestRecord:
    assert isinstance(commands[-1], Settle)
    return commands[-1].record


def dropped(book: RequestBook) -> dict[DropReason, int]:
    return {reason: count for reason, count in book.dropped.items() if count}


def new_book() -> RequestBook:
    book = RequestBook(SoleWorker(WORKER))
    book.observe(WorkerJoined(worker_info(WORKER)), 0.0)
    return book


def opened(**shape: float) -> RequestBook:
    book = new_book()
    book.start(request(**shape), 0.0)  # pyright: ignore[reportArgumentType]
    book.heard(Admitted(request=ID), 1.0)
    return book


def test_a_plain_run_leaves_a_full_record() -> None:
    book, asked = new_book(), request()
    assert book.start(asked, 1.0) == (Dispatch(asked, WORKER),)
    assert book.heard(Admitted(request=ID), 2.0) == ()
    assert book.heard(Started(request=ID, attempt=1, cached_tokens=2, queued_s=1.0), 3.0) == ()
    assert book.heard(token(0), 4.0) == (Deliver(token(0)),)
    assert book.heard(Preempted(request=ID, attempt=1, sequence=0), 5.0) == ()
    assert book.heard(last(1), 6.0) == (Deliver(last(1)),)
    assert len(book) == 1
    commands = book.heard(ended(), 7.0)
    assert commands[0] == end(0, FinishReason.STOP)
    assert settled(commands) == RequestRecord(
        request=ID,
        outcome=Outcome.FINISHED,
        finish_reasons=(FinishReason.STOP,),
        prompt_tokens=3,
        cached_tokens=2,
        output_tokens=2,
        attempts=1,
        preemptions=1,
        arrived_at=1.0,
        started_at=2.0,  # what the worker measured, not when its report came
        first_token_at=4.0,
        last_token_at=6.0,
        ended_at=7.0,
        trail=(
            AttemptRecord(
                began_at=1.0,
                routed_at=1.0,
                route="w0: the only worker",
                first_token_at=4.0,
                computed_tokens=1,
            ),
        ),
    )
    assert len(book) == 0
    assert dropped(book) == {}


def test_a_refusal_reaches_the_client_with_its_reason() -> None:
    book = new_book()
    book.start(request(deadline=9.0), 0.0)
    (settle,) = book.heard(refused(), 1.0)
    assert isinstance(settle, Settle)
    assert settle.rejected == refused()
    assert settle.record.outcome is Outcome.REJECTED
    assert settle.record.message == "come back later"
    assert settle.record.finish_reasons == ()
    assert (len(book), book.next_deadline()) == (0, None)


def test_a_refusal_after_an_answer_is_a_contradiction() -> None:
    book = opened()
    assert book.heard(refused(), 1.0) == ()
    assert dropped(book) == {DropReason.CONTRADICTION: 1}
    assert len(book) == 1


def test_events_may_overtake_the_answer() -> None:
    book = new_book()
    book.start(request(), 0.0)
    assert book.heard(last(0), 1.0) == (Deliver(last(0)),)
    assert book.heard(refused(), 2.0) == ()
    assert book.heard(Admitted(request=ID), 2.0) == ()
    assert settled(book.heard(ended(), 3.0)).started_at == 1.0


def test_a_stop_string_ends_its_sequence_only() -> None:
    book = opened(n=2)
    book.heard(token(0), 2.0)
    stop = book.cancel(ID, 3.0, sequence=0, reason=FinishReason.STOP)
    assert stop == (Abort(ID, 1, WORKER, 0), end(0, FinishReason.STOP))
    assert book.heard(token(1), 4.0) == ()
    assert book.heard(ended(reason=FinishReason.ABORTED), 4.0) == ()
    assert dropped(book) == {DropReason.LATE: 2}
    assert book.cancel(ID, 4.0, sequence=0, reason=FinishReason.STOP) == ()
    assert book.heard(last(0, sequence=1), 5.0) == (Deliver(last(0, sequence=1)),)
    record = settled(book.heard(ended(1), 6.0))
    assert record.outcome is Outcome.FINISHED
    assert record.finish_reasons == (FinishReason.STOP, FinishReason.STOP)
    assert record.output_tokens == 2


def test_a_stop_string_in_the_last_sequence_settles() -> None:
    book = opened()
    commands = book.cancel(ID, 3.0, sequence=0, reason=FinishReason.STOP)
    assert commands[:2] == (Abort(ID, 1, WORKER, 0), end(0, FinishReason.STOP))
    assert settled(commands).outcome is Outcome.FINISHED


@pytest.mark.parametrize("admitted", [False, True])
def test_a_client_may_leave_at_any_time(admitted: bool) -> None:
    book = new_book()
    book.start(request(n=2), 0.0)
    if admitted:
        book.heard(Admitted(request=ID), 1.0)
    commands = book.cancel(ID, 2.0)
    assert commands[:3] == (
        Abort(ID, 1, WORKER),
        end(0, FinishReason.ABORTED),
        end(1, FinishReason.ABORTED),
    )
    assert settled(commands).outcome is Outcome.CANCELLED
    assert book.heard(Admitted(request=ID), 3.0) == ()
    assert book.heard(token(0), 3.0) == ()
    assert book.cancel(ID, 4.0) == ()
    assert dropped(book) == {DropReason.UNKNOWN: 2}


def test_deadlines_end_requests_in_their_order() -> None:
    book = new_book()
    for name, deadline in (("c", 5.0), ("b", 3.0), ("a", 5.0), ("d", 6.0)):
        book.start(replace(request(deadline=deadline), id=RequestId(name)), 0.0)
    assert book.next_deadline() == 3.0
    assert book.due(2.9) == ()
    ends = [command for command in book.due(5.0) if isinstance(command, Settle)]
    assert [settle.record.request for settle in ends] == ["b", "a", "c"]
    assert {settle.record.outcome for settle in ends} == {Outcome.DEADLINE}
    assert book.next_deadline() == 6.0


def test_a_passed_deadline_is_refused_at_once() -> None:
    book = new_book()
    (settle,) = book.start(request(deadline=1.0), 1.0)
    assert isinstance(settle, Settle) and settle.rejected is not None
    assert settle.rejected.reason is RejectReason.DEADLINE
    assert settle.record.outcome is Outcome.REJECTED
    assert len(book) == 0


def test_the_worker_may_end_by_deadline_or_error() -> None:
    book = opened()
    assert settled(book.heard(ended(reason=FinishReason.DEADLINE), 2.0)).outcome == "deadline"
    book = opened(n=2)
    book.heard(last(0), 2.0)
    book.heard(ended(0), 2.0)
    failed = SequenceEnded(
        request=ID, attempt=1, sequence=1, reason=FinishReason.ERROR, message="logits are NaN"
    )
    record = settled(book.heard(failed, 3.0))
    assert (record.outcome, record.message) == (Outcome.FAILED, "logits are NaN")


def test_a_lost_worker_fails_its_requests() -> None:
    book = opened(n=2)
    book.heard(last(0), 2.0)
    book.heard(ended(0), 2.0)
    assert book.observe(HealthChanged(WorkerId("another"), Health.LOST), 3.0) == ()
    commands = book.observe(HealthChanged(WORKER, Health.LOST), 3.0)
    assert commands[:-1] == (end(1, FinishReason.ERROR, "worker w0 is gone"),)
    record = settled(commands)
    assert (record.outcome, record.attempts) == (Outcome.FAILED, 1)
    assert record.finish_reasons == (FinishReason.STOP, FinishReason.ERROR)
    assert book.observe(HealthChanged(WORKER, Health.LOST), 4.0) == ()


def test_a_skipped_token_begins_an_attempt_after_what_came() -> None:
    book = opened()
    book.heard(token(0), 2.0)
    abort, dispatch = book.heard(token(2), 3.0)
    assert abort == Abort(ID, 1, WORKER)
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.request.attempt, dispatch.request.resumed) == (2, ((10,),))
    assert book.heard(token(1), 3.0) == (), "the first attempt is over"


def test_an_attempt_says_what_it_computed_of_prompt_and_of_what_came_before() -> None:
    book = opened()
    book.heard(Started(request=ID, attempt=1, cached_tokens=2, queued_s=0.0), 1.0)
    book.heard(token(0), 2.0)
    book.heard(token(2), 3.0)
    book.heard(Admitted(request=ID, attempt=2), 4.0)
    for cached in (1, 0):
        book.heard(Started(request=ID, attempt=2, cached_tokens=cached, queued_s=0.0), 5.0)
    record = settled(book.observe(HealthChanged(WORKER, Health.LOST), 6.0))
    assert [attempt.computed_tokens for attempt in record.trail] == [1, 3]


def test_a_worker_that_never_stops_is_stopped() -> None:
    book = opened(max_tokens=1)
    book.heard(token(0), 2.0)
    record = settled(book.heard(token(1), 3.0))
    assert (record.outcome, record.message) == (
        Outcome.FAILED,
        "the worker went on after max_tokens (1)",
    )


def test_what_is_not_ours_is_dropped_and_counted() -> None:
    book = opened()
    assert book.heard(token(0), 2.0)
    assert book.heard(token(0), 2.0) == ()
    for foreign in (token(1, attempt=2), token(0, sequence=1), token(0, sequence=-1)):
        assert book.heard(foreign, 2.0) == ()
    began = Started(request=ID, attempt=1, cached_tokens=1, queued_s=0.0)
    assert book.heard(replace(began, attempt=0), 2.0) == ()
    assert book.heard(began, 2.0) == ()
    assert book.heard(replace(token(0), request=RequestId("r2")), 2.0) == ()
    assert dropped(book) == {
        DropReason.UNKNOWN: 1,
        DropReason.FOREIGN: 4,
        DropReason.DUPLICATE: 2,
    }


def test_a_resumed_request_goes_on_where_it_was() -> None:
    book = new_book()
    asked = replace(request(n=2), attempt=2, resumed=((7, 8), ()))
    book.start(asked, 0.0)
    assert book.heard(token(1, attempt=2), 1.0) == ()
    assert book.heard(token(2, attempt=2), 1.0) == (Deliver(token(2, attempt=2)),)
    assert book.heard(token(0, sequence=1, attempt=2), 1.0)
    assert settled(book.cancel(ID, 2.0)).output_tokens == 4


def test_callers_that_break_their_promise() -> None:
    book = opened()
    with pytest.raises(BugError, match="r1 is already in the book"):
        book.start(request(), 1.0)
    with pytest.raises(BugError, match="no sequence 1"):
        book.cancel(ID, 1.0, sequence=1)
    with pytest.raises(BugError, match="more sequences"):
        new_book().start(replace(request(), resumed=((), ())), 0.0)
