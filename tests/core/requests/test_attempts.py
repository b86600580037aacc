"""Requests whose workers die or fail: attempts after the first, and when there is none.

Cases that failed in other systems name them.
"""

from dataclasses import replace

import pytest
from attempt_kit import (
    EOS,
    ID,
    D,
    E,
    P,
    Q,
    Split,
    answer,
    ended,
    finish,
    given_up,
    grant,
    lose,
    pulled,
    request,
    split_router,
    started,
    token,
)
from fleet_kit import ScriptedRouter, book_of, no_worker, settle_of, worker_info

from antiphon.types import (
    Abort,
    Admitted,
    Adopt,
    Deliver,
    Dispatch,
    Fetched,
    FinishReason,
    Health,
    HealthChanged,
    LeaseRefusal,
    Outcome,
    RejectReason,
    SamplingParams,
    Stage,
    TokenGenerated,
    WorkerJoined,
)


def test_a_decode_worker_that_dies_before_it_has_pulled_costs_no_prefill() -> None:
    case = Split(split_router("d", "e")).adopted()
    assert lose(case.book, "d", 5.0) == (grant("p", "e", attempt=2),)
    assert case.book.heard(pulled(attempt=1), 5.1) == ()
    (adopt,) = case.book.heard(answer(attempt=2), 6.0)
    assert isinstance(adopt, Adopt)
    assert adopt.worker == E
    record = settle_of(finish(case.book, 1, 7.0, attempt=2)).record
    routes = [one.route for one in record.trail]
    assert routes == ["p > d: chosen at its offer", "p > e: its KV is still offered"]
    assert [one.began_at for one in record.trail] == [1.0, 5.0]
    assert record.attempts == 2


def test_a_prefill_worker_that_dies_before_the_handover_costs_a_prefill() -> None:
    case = Split().offered()
    case.router.routes = [("q", "d")]
    (dispatch,) = lose(case.book, "p", 4.0)
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.worker, dispatch.stage) == (Q, Stage.PREFILL)
    assert (dispatch.request.attempt, dispatch.request.resumed) == (2, ((10,),))
    assert case.book.heard(answer(), 5.0) == ()


def test_a_prefill_worker_that_dies_after_the_handover_costs_nothing_here() -> None:
    """sglang 16903: decode workers had to be restarted after a prefill worker's death."""
    case = Split().adopted()
    assert lose(case.book, "p", 5.0) == ()
    assert (case.book.offers, case.book.next_deadline()) == (0, None)
    assert case.book.heard(pulled(missing=3), 6.0) == ()
    assert case.book.heard(token(1), 7.0) == (Deliver(token(1)),)


def test_a_failed_prefill_ends_the_request_and_nobody_waits() -> None:
    """aibrix 2289: the failure of one leg was lost, and the other waited for ever."""
    case = Split()
    record = settle_of(case.book.heard(ended(reason=FinishReason.ERROR), 3.0)).record
    assert record.outcome is Outcome.FAILED
    assert case.book.next_deadline() is None


def test_a_lost_decode_worker_loses_no_token_and_repeats_none() -> None:
    case = Split(n=2).decoding()
    case.book.heard(token(1, 0), 6.0)
    finish(case.book, 1, 6.5, 1)
    case.router.routes = [(None, "e")]
    (dispatch,) = lose(case.book, "d", 7.0)
    assert isinstance(dispatch, Dispatch)
    again = dispatch.request
    assert (again.attempt, again.resumed, again.done) == (2, ((10, 11), (10, EOS)), (1,))
    assert case.book.heard(token(2, 0), 7.5) == (), "the old worker's word counts no more"
    assert case.book.heard(token(2, 0, attempt=2), 8.0) == (Deliver(token(2, 0, attempt=2)),)
    record = settle_of(finish(case.book, 3, 9.0, attempt=2)).record
    assert record.output_tokens == 6
    assert record.finish_reasons == (FinishReason.STOP, FinishReason.STOP)


@pytest.mark.parametrize(
    ("last", "reason"),
    [(token(0, token=0), FinishReason.STOP), (token(0, token=7), FinishReason.LENGTH)],
)
def test_only_the_word_of_the_end_was_lost(last: TokenGenerated, reason: FinishReason) -> None:
    """The last token came, and then the worker died: nothing is left to run."""
    book = book_of(ScriptedRouter(routes=[(None, "p")]), "p", "d")
    asked = replace(request(), sampling=SamplingParams(max_tokens=1, seed=0), eos_token_ids=(0,))
    if reason is FinishReason.STOP:
        asked = replace(asked, sampling=SamplingParams(max_tokens=9, seed=0))
    book.start(asked, 0.0)
    book.heard(last, 1.0)
    record = settle_of(lose(book, "p", 2.0)).record
    assert (record.outcome, record.finish_reasons) == (Outcome.FINISHED, (reason,))


def test_three_deaths_in_a_row_without_a_token_end_the_request() -> None:
    """It may be what kills them. A token in between says that it is not."""
    names = [f"w{number}" for number in range(5)]
    book = book_of(ScriptedRouter(routes=[(None, name) for name in names]), *names)
    book.start(request(), 0.0)
    for attempt, name in enumerate(names, 1):
        book.heard(started(attempt), 1.0)
        if name == names[-1]:
            break
        if attempt in (1, 2):
            book.heard(token(attempt - 1, attempt=attempt), 1.0)
        assert isinstance(lose(book, name, 2.0)[0], Dispatch)
    settle = settle_of(lose(book, names[-1], 3.0))
    assert (settle.record.outcome, settle.record.attempts) == (Outcome.FAILED, 5)
    assert settle.record.message == "3 attempts in a row broke off before a token came"


def test_a_request_that_only_waits_is_no_reason_for_a_death() -> None:
    """Ten workers die of something else, one after the other, with the request in their queues."""
    names = [f"w{number}" for number in range(11)]
    book = book_of(ScriptedRouter(routes=[(None, name) for name in names]), *names)
    book.start(request(), 0.0)
    for attempt, name in enumerate(names[:-1], 1):
        book.heard(Admitted(request=ID, attempt=attempt), 1.0)
        (dispatch,) = lose(book, name, 2.0)
        assert isinstance(dispatch, Dispatch) and dispatch.worker == names[attempt]
    book.heard(started(11), 3.0)
    assert settle_of(finish(book, 0, 4.0, attempt=11)).record.outcome is Outcome.FINISHED


def test_deaths_while_it_waits_neither_count_nor_clear_the_count() -> None:
    names = [f"w{number}" for number in range(6)]
    book = book_of(ScriptedRouter(routes=[(None, name) for name in names]), *names)
    last = book.start(request(), 0.0)
    for attempt, name in enumerate(names[:-1], 1):
        if attempt % 2:
            book.heard(started(attempt), 1.0)
        last = lose(book, name, 2.0)
        assert isinstance(last[0], Dispatch) == (attempt < 5)
    assert settle_of(last).record.outcome is Outcome.FAILED


def test_what_is_fetched_or_has_an_offer_to_pull_is_no_longer_waiting() -> None:
    names = [f"w{number}" for number in range(3)]
    book = book_of(ScriptedRouter(routes=[(None, name) for name in names]), *names)
    last = book.start(request(), 0.0)
    for attempt, name in enumerate(names, 1):
        book.heard(Fetched(request=ID, attempt=attempt, fetched_tokens=2), 1.0)
        last = lose(book, name, 2.0)
    assert settle_of(last).record.outcome is Outcome.FAILED
    case = Split(split_router("d", "e", "d", "e")).adopted()
    last = lose(case.book, "d", 5.0)
    for attempt, worker, back in ((2, "e", "d"), (3, "d", "e"), (4, "e", "d")):
        case.book.observe(WorkerJoined(worker_info(back, life=str(attempt))), 5.5)
        assert last == (grant("p", worker, attempt=attempt),)
        case.book.heard(answer(attempt=attempt), 6.0)
        last = lose(case.book, worker, 7.0)
    assert settle_of(last).record.outcome is Outcome.FAILED


def test_a_workers_own_fault_moves_its_request() -> None:
    """Dynamo's migration moved what a lost worker had; what a sick one had failed."""
    book = book_of(ScriptedRouter(routes=[(None, "p"), (None, "d")]), "p", "d")
    book.start(request(), 0.0)
    book.heard(token(0), 1.0)
    (dispatch,) = book.heard(given_up(), 2.0)
    assert isinstance(dispatch, Dispatch), "and nobody is told to stop: it has"
    assert (dispatch.worker, dispatch.request.attempt) == (D, 2)
    assert dispatch.request.resumed == ((10,),)
    assert book.heard(given_up(), 2.5) == (), "the word of an attempt that is over"
    assert settle_of(finish(book, 1, 3.0, attempt=2)).record.outcome is Outcome.FINISHED


def test_a_taker_that_gives_up_leaves_the_offer_to_another() -> None:
    case = Split(split_router("d", "e")).adopted()
    assert case.book.heard(given_up(), 5.0) == (grant("p", "e", attempt=2),)


def test_a_prompt_that_cannot_be_offered_is_run_whole() -> None:
    case = Split()
    (dispatch,) = case.book.heard(given_up(), 3.0)
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.worker, dispatch.stage, dispatch.request.attempt) == (D, Stage.WHOLE, 2)


def test_three_faults_in_a_row_without_a_token_end_the_request() -> None:
    book = book_of(ScriptedRouter(routes=[(None, "p")]), "p")
    book.start(request(), 0.0)
    for attempt in (1, 2):
        assert isinstance(book.heard(given_up(attempt), 1.0)[0], Dispatch)
    assert settle_of(book.heard(given_up(3), 2.0)).record.outcome is Outcome.FAILED


def test_lost_kv_is_nobodys_death() -> None:
    """Two deaths and a lease that was gone are not three deaths."""
    case = Split(split_router("d", "e")).adopted()
    lose(case.book, "d", 5.0)
    case.router.routes = [(None, "q")]
    case.book.heard(answer(attempt=2, refused=LeaseRefusal.GONE), 6.0)
    case.router.routes = [(None, "e")]
    lose(case.book, "q", 7.0)
    case.router.routes = [(None, "p")]
    (dispatch,) = lose(case.book, "e", 8.0)
    assert isinstance(dispatch, Dispatch)
    assert dispatch.worker == P


def test_another_life_of_a_worker_has_nothing_of_the_former() -> None:
    """vllm 49238: a restarted peer was taken for the one before."""
    case = Split().decoding()
    case.router.routes = [(None, "d")]
    assert case.book.observe(WorkerJoined(worker_info("d")), 5.5) == (), "the same life"
    case.router.routes = [(None, "e")]
    (dispatch,) = case.book.observe(WorkerJoined(worker_info("d", life="2")), 6.0)
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.worker, dispatch.request.attempt) == (E, 2)
    assert HealthChanged(D, Health.LOST) in case.router.seen


def test_an_offer_of_a_former_life_is_worth_nothing() -> None:
    case = Split()
    case.offer = replace(case.offer, incarnation=worker_info("p", life="0").incarnation)
    case.offered()
    assert case.commands[0] == Abort(ID, 1, P), "no release: that life is over"
    assert settle_of(case.commands).record.outcome is Outcome.FAILED


def test_with_nobody_left_a_request_that_has_begun_fails() -> None:
    case = Split().decoding()
    case.router.routes = [no_worker()]
    settle = settle_of(lose(case.book, "d", 6.0))
    assert settle.record.outcome is Outcome.FAILED
    assert settle.rejected is not None
    assert settle.rejected.reason is RejectReason.NO_WORKER
