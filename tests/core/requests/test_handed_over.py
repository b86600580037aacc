"""A request whose prompt one worker computes and whose answer another one says.

Cases that failed in other systems name them.
"""

from dataclasses import replace

import pytest
from attempt_kit import (
    EOS,
    ID,
    LEASE,
    D,
    E,
    P,
    Q,
    Split,
    answer,
    ended,
    finish,
    grant,
    pulled,
    refusal,
    request,
    split_router,
    token,
)
from fleet_kit import ScriptedRouter, book_of, no_worker, offer_of, settle_of, worker_info

from antiphon.core.requests import DropReason
from antiphon.types import (
    Abort,
    Admitted,
    Adopt,
    Deliver,
    Dispatch,
    EndSequence,
    FinishReason,
    LeaseId,
    LeaseRefusal,
    Outcome,
    RejectReason,
    Release,
    Renew,
    RequestId,
    SamplingParams,
    Stage,
    WorkerJoined,
)


def test_a_split_request_is_offered_granted_adopted_and_pulled() -> None:
    case = Split(n=2)
    assert case.start == (Dispatch(case.request, P, Stage.PREFILL),)
    case.offered()
    assert case.commands == (grant("p", "d"),)
    (adopt,) = case.book.heard(answer(), 4.0)
    assert isinstance(adopt, Adopt)
    assert (adopt.worker, adopt.offer) == (D, case.offer)
    assert adopt.request.attempt == 1
    assert adopt.request.resumed == ((10,), (10,))
    assert case.book.heard(Admitted(request=ID), 4.5) == ()
    assert case.book.heard(pulled(missing=1), 5.0) == ()
    assert case.book.offers == 0
    assert case.book.heard(token(1), 6.0) == (Deliver(token(1)),)
    finish(case.book, 2, 7.0)
    record = settle_of(finish(case.book, 1, 8.0, 1)).record
    assert (record.outcome, record.attempts, record.exact) == (Outcome.FINISHED, 1, True)
    (trail,) = record.trail
    stamps = (trail.began_at, trail.routed_at, trail.offered_at, trail.adopted_at, trail.pulled_at)
    assert stamps == (1.0, 1.0, 3.0, 4.0, 5.0)
    assert trail.route == "p > d: chosen at its offer"
    assert (record.pulled_tokens, record.recomputed_tokens, record.output_tokens) == (3, 1, 5)
    assert [name for name, _ in case.router.calls] == [
        "choose",
        "prefilled",
        "choose_decode",
        "settled",
    ]


def test_a_request_that_ends_with_its_first_token_is_not_offered() -> None:
    book = book_of(split_router(), "p", "d")
    book.start(request(), 1.0)
    assert settle_of(finish(book, 0, 3.0)).record.outcome is Outcome.FINISHED


def test_what_has_ended_is_not_handed_over() -> None:
    """A stop string in the first token: the offer still names the sequence."""
    case = Split(n=3)
    case.book.heard(ended(2, reason=FinishReason.ERROR), 2.0)
    assert case.book.cancel(ID, 2.5, sequence=0, reason=FinishReason.STOP)[0] == Abort(ID, 1, P, 0)
    (adopt,) = case.adopted().commands
    assert isinstance(adopt, Adopt)
    assert adopt.request.done == (0, 2)


# ── leases ───────────────────────────────────────────────────────────────────────────────────────


def test_leases_are_renewed_a_third_of_their_life_apart_and_an_owner_hears_of_all_at_once() -> None:
    book = book_of(split_router(), "p", "d")
    for number in (1, 2):
        asked = replace(request(), id=RequestId(f"r{number}"))
        book.start(asked, 0.0)
        book.heard(replace(token(0), request=asked.id), 1.0)
        book.heard(offer_of(asked, worker_info("p"), lease=f"lease-{number}"), float(number))
    assert book.next_deadline() == 4.0
    both = Renew(owner=P, leases=(LEASE, LeaseId("lease-2")))
    assert book.due(4.0) == (both,)
    assert book.next_deadline() == 7.0
    assert book.due(6.9) == ()
    assert book.due(7.5) == (both,)


@pytest.mark.parametrize("ttl_s", [0.0, -5.0, float("nan"), float("inf")])
def test_an_offer_with_a_senseless_time_to_live_is_not_taken_up(ttl_s: float) -> None:
    case = Split()
    case.offer = replace(case.offer, ttl_s=ttl_s)
    case.offered()
    assert case.commands[:2] == (Release(owner=P, lease=LEASE), Abort(ID, 1, P))
    assert "lives for" in settle_of(case.commands).record.message
    assert case.book.next_deadline() is None


def test_a_tiny_time_to_live_keeps_nobody_busy() -> None:
    case = Split()
    case.offer = replace(case.offer, ttl_s=1e-300)
    case.offered()
    assert case.book.due(4.0) == (Renew(owner=P, leases=(LEASE,)),)
    following = case.book.next_deadline()
    assert following is not None
    assert following > 4.0


def test_what_is_pulled_is_renewed_no_more() -> None:
    assert Split().decoding().book.next_deadline() is None


def test_a_cancel_while_kv_waits_releases_it() -> None:
    """llm-d 1138: whoever gave the lease must own its end, also between grant and take."""
    case = Split().offered()
    commands = case.book.cancel(ID, 3.5)
    assert commands[:2] == (
        EndSequence(request=ID, sequence=0, reason=FinishReason.ABORTED),
        Release(owner=P, lease=LEASE),
    )
    assert settle_of(commands).record.outcome is Outcome.CANCELLED
    assert case.book.heard(answer(), 4.0) == ()
    assert (case.book.offers, case.book.next_deadline()) == (0, None)


def test_a_cancel_while_kv_moves_stops_the_taker_and_frees_the_owner() -> None:
    commands = Split().adopted().book.cancel(ID, 4.5)
    assert commands[0] == Abort(ID, 1, D)
    assert Release(owner=P, lease=LEASE) in commands


def test_a_cancel_before_the_first_token_reaches_the_prefill_worker() -> None:
    """dynamo 13691: cancelled prompts went on computing. An offer on its way is released."""
    book = book_of(split_router(), "p", "d")
    asked = request()
    book.start(asked, 0.0)
    assert book.cancel(ID, 1.0)[0] == Abort(ID, 1, P)
    late = offer_of(asked, worker_info("p"))
    assert book.heard(late, 2.0) == (Release(owner=P, lease=LEASE),)
    assert book.dropped[DropReason.UNKNOWN] == 1


def test_a_deadline_ends_a_handover() -> None:
    """dynamo 13088: requests hung in a hand-over until their clients left."""
    case = Split(deadline=20.0).offered()
    while (at := case.book.next_deadline()) is not None and at < 20.0:
        assert isinstance(case.book.due(at)[0], Renew)
    commands = case.book.due(20.0)
    assert Release(owner=P, lease=LEASE) in commands
    assert settle_of(commands).record.outcome is Outcome.DEADLINE


def test_a_decode_worker_that_has_no_room_strands_no_pages() -> None:
    """vllm 41269: a refusal before admission left the prefill's pages until a timeout."""
    case = Split(split_router("d", "e")).adopted()
    commands = case.book.heard(refusal(), 5.0)
    assert commands == (grant("p", "e", attempt=2),)
    (adopt,) = case.book.heard(answer(attempt=2), 6.0)
    assert isinstance(adopt, Adopt)
    assert (adopt.worker, adopt.request.attempt, adopt.request.resumed) == (E, 2, ((10,),))
    case.router.routes = [("p", "e")]
    release, dispatch = case.book.heard(refusal(RejectReason.INVALID, attempt=2), 7.0)
    assert release == Release(owner=P, lease=LEASE)
    assert isinstance(dispatch, Dispatch), "who does not adopt it may run it"
    assert (dispatch.worker, dispatch.stage) == (E, Stage.WHOLE)
    assert case.book.heard(refusal(RejectReason.INVALID, attempt=3), 8.0)[:-1] == (
        EndSequence(request=ID, sequence=0, reason=FinishReason.ERROR, message="full"),
    )


def test_when_no_decode_worker_has_room_the_offer_waits_longer_each_time() -> None:
    case = Split(split_router("d")).adopted()
    assert case.book.heard(refusal(), 5.0) == ()
    assert case.book.held == (0, 1)
    assert case.book.next_deadline() == pytest.approx(5.1)
    assert case.book.observe(WorkerJoined(worker_info("f")), 5.05) == ()
    assert case.book.due(5.1) == (grant("p", "d", attempt=2),)
    case.book.heard(answer(attempt=2), 5.2)
    assert case.book.heard(refusal(attempt=2), 5.3) == ()
    assert case.book.next_deadline() == pytest.approx(5.5)


def test_a_prompt_that_is_too_long_to_be_offered_runs_whole() -> None:
    """More than half of the worker's memory, which the router did not know."""
    router = ScriptedRouter(routes=[("p", "d")])
    book = book_of(router, "p", "d")
    book.start(request(), 1.0)
    (dispatch,) = book.heard(refusal(RejectReason.TOO_LONG), 2.0)
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.worker, dispatch.stage, dispatch.request.attempt) == (D, Stage.WHOLE, 2)
    assert settle_of(book.heard(refusal(RejectReason.TOO_LONG, attempt=2), 3.0)).rejected


def test_kv_that_is_too_long_to_be_adopted_is_released_and_the_request_runs_whole() -> None:
    case = Split().adopted()
    release, dispatch = case.book.heard(refusal(RejectReason.TOO_LONG), 5.0)
    assert release == Release(owner=P, lease=LEASE)
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.worker, dispatch.stage, dispatch.request.resumed) == (
        D,
        Stage.WHOLE,
        ((10,),),
    )
    settle = settle_of(case.book.heard(refusal(RejectReason.TOO_LONG, attempt=2), 6.0))
    assert settle.record.outcome is Outcome.FAILED
    assert case.book.offers == 0


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_an_answer_whose_last_token_was_lost_goes_on_after_what_came(reason: FinishReason) -> None:
    """Cut short, it must not look complete."""
    book = book_of(ScriptedRouter(routes=[(None, "p"), (None, "d")]), "p", "d")
    book.start(request(n=2), 0.0)
    finish(book, 0, 1.0, 1)
    book.heard(token(0), 1.0)
    abort, dispatch = book.heard(ended(reason=reason), 2.0)
    assert abort == Abort(ID, 1, P)
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.worker, dispatch.request.attempt) == (D, 2)
    assert (dispatch.request.resumed, dispatch.request.done) == (((10,), (EOS,)), (1,))
    record = settle_of(finish(book, 1, 3.0, attempt=2)).record
    assert (record.outcome, record.output_tokens) == (Outcome.FINISHED, 3)


def test_kv_of_an_answer_that_was_cut_short_is_given_up() -> None:
    case = Split().adopted()
    commands = case.book.heard(ended(), 5.0)
    assert commands[:2] == (Abort(ID, 1, D), Release(owner=P, lease=LEASE))
    assert isinstance(commands[2], Dispatch)


@pytest.mark.parametrize(
    ("shape", "tokens", "reason"),
    [
        ({"max_tokens": 2}, (10, 11), FinishReason.LENGTH),
        ({"max_tokens": 0}, (), FinishReason.LENGTH),
        ({"max_tokens": 100}, range(10, 71), FinishReason.LENGTH),
        ({"max_tokens": 9, "stop_token_ids": (11,)}, (10, 11), FinishReason.STOP),
        ({"max_tokens": 9, "min_tokens": 2}, (EOS, EOS), FinishReason.STOP),
        ({"max_tokens": 2, "min_tokens": 2}, (10, EOS), FinishReason.STOP),
    ],
    ids=["max_tokens", "no tokens", "the worker's limit", "stop id", "min_tokens", "both"],
)
def test_what_is_complete_ends(shape, tokens, reason: FinishReason) -> None:
    book = book_of(ScriptedRouter(routes=[(None, "p")]), "p")
    book.start(replace(request(), sampling=SamplingParams(seed=0, **shape)), 0.0)
    for index, id in enumerate(tokens):
        book.heard(token(index, token=id), 1.0)
    record = settle_of(book.heard(ended(reason=reason), 2.0)).record
    assert (record.outcome, record.finish_reasons) == (Outcome.FINISHED, (reason,))


@pytest.mark.parametrize(
    ("shape", "tokens", "reason"),
    [
        ({"max_tokens": 3}, (10, 11), FinishReason.LENGTH),
        ({"max_tokens": 100}, range(10, 70), FinishReason.LENGTH),
        ({"max_tokens": 9, "min_tokens": 3}, (10, EOS), FinishReason.STOP),
        ({"max_tokens": 9}, (), FinishReason.STOP),
    ],
    ids=["max_tokens", "the worker's limit", "min_tokens", "no tokens"],
)
def test_what_is_not_complete_goes_on(shape, tokens, reason: FinishReason) -> None:
    book = book_of(ScriptedRouter(routes=[(None, "p")]), "p")
    book.start(replace(request(), sampling=SamplingParams(seed=0, **shape)), 0.0)
    for index, id in enumerate(tokens):
        book.heard(token(index, token=id), 1.0)
    abort, dispatch = book.heard(ended(reason=reason), 2.0)
    assert abort == Abort(ID, 1, P)
    assert isinstance(dispatch, Dispatch) and dispatch.request.attempt == 2


def test_a_worker_that_always_loses_the_first_token_ends_the_request() -> None:
    book = book_of(ScriptedRouter(routes=[(None, "p")]), "p")
    book.start(request(), 0.0)
    for attempt in (1, 2):
        assert isinstance(book.heard(ended(attempt=attempt), 1.0)[1], Dispatch)
    record = settle_of(book.heard(ended(attempt=3), 2.0)).record
    assert (record.outcome, record.attempts) == (Outcome.FAILED, 3)


def test_a_lease_that_is_gone_starts_a_new_attempt() -> None:
    case = Split().offered()
    commands = case.book.heard(answer(refused=LeaseRefusal.GONE), 4.0)
    assert commands[0] == Release(owner=P, lease=LEASE)
    dispatch = commands[1]
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.request.attempt, dispatch.request.resumed) == (2, ((10,),))


def test_an_offer_that_nobody_can_use_is_given_up() -> None:
    case = Split(ScriptedRouter(routes=[("p", "d"), (None, "q")], takers=[no_worker()])).offered()
    assert case.commands[0] == Release(owner=P, lease=LEASE)
    dispatch = case.commands[1]
    assert isinstance(dispatch, Dispatch)
    assert (dispatch.worker, dispatch.stage, dispatch.request.attempt) == (Q, Stage.WHOLE, 2)


def test_an_offer_of_something_else_fails_the_request() -> None:
    """TensorRT-LLM 19545: success was reported for what was never written. Fail closed."""
    case = Split(n=2)
    commands = case.book.heard(offer_of(case.request, worker_info("p"), sequences=(0,)), 3.0)
    assert commands[:2] == (Release(owner=P, lease=LEASE), Abort(ID, 1, P))
    assert "lacks the KV of sequence 1" in settle_of(commands).record.message


def test_two_requests_cannot_have_one_lease() -> None:
    """sglang 40125: two transfers under one name brought both sides down."""
    case = Split().offered()
    second = replace(request(), id=RequestId("r2"))
    case.book.start(second, 4.0)
    case.book.heard(replace(token(0), request=second.id), 4.5)
    commands = case.book.heard(offer_of(second, worker_info("p")), 5.0)
    assert commands[0] == Abort(second.id, 1, P)
    assert "the lease of another" in settle_of(commands).record.message
    assert case.book.offers == 1


def test_an_offer_without_its_token_fails_the_request() -> None:
    book = book_of(split_router(), "p", "d")
    book.start(request(), 0.0)
    commands = book.heard(offer_of(request(), worker_info("p")), 1.0)
    assert "without a token of sequence 0" in settle_of(commands).record.message
