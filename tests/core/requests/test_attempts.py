"""Requests on a fleet: split, handed over, refused, lost and moved.

Cases that failed in other systems name them.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fleet_kit import ScriptedRouter, book_of, hold, no_worker, offer_of, settle_of, worker_info

from antiphon.core.requests import DropReason, RequestBook
from antiphon.errors import BugError
from antiphon.types import (
    Abort,
    Admitted,
    Adopt,
    AttemptFailed,
    Command,
    Deliver,
    Dispatch,
    Drained,
    EndSequence,
    Fetched,
    FinishReason,
    Grant,
    GrantAnswered,
    Health,
    HealthChanged,
    LeaseId,
    LeaseRefusal,
    Offer,
    Outcome,
    Pulled,
    Rejected,
    RejectReason,
    Release,
    Renew,
    Request,
    RequestId,
    SamplingParams,
    SequenceEnded,
    Stage,
    Started,
    TokenGenerated,
    WorkerId,
    WorkerJoined,
)

ID = RequestId("r1")
LEASE = LeaseId("lease-1")
EOS = 2
P, Q, D, E = map(WorkerId, ("p", "q", "d", "e"))


def request(n: int = 1, **shape: object) -> Request:
    sampling = SamplingParams(n=n, max_tokens=100, seed=0)
    facts = {"eos_token_ids": (EOS,)} | shape
    return Request(id=ID, prompt=(1, 2, 3), sampling=sampling, **facts)  # pyright: ignore


def token(index: int, sequence: int = 0, attempt: int = 1, token: int | None = None):
    return TokenGenerated(
        request=ID,
        attempt=attempt,
        sequence=sequence,
        index=index,
        token=10 + index if token is None else token,
    )


def ended(sequence: int = 0, attempt: int = 1, reason: FinishReason = FinishReason.STOP):
    return SequenceEnded(request=ID, attempt=attempt, sequence=sequence, reason=reason)


def finish(
    book: RequestBook, index: int, at: float, sequence: int = 0, attempt: int = 1
) -> Sequence[Command]:
    """The last token of a sequence, and word of its end."""
    last = token(index, sequence, attempt, token=EOS)
    assert book.heard(last, at) == (Deliver(last),)
    return book.heard(ended(sequence, attempt), at)


def refusal(reason: RejectReason = RejectReason.QUEUE_FULL, attempt: int = 1) -> Rejected:
    return Rejected(request=ID, reason=reason, message="full", attempt=attempt)


def answer(attempt: int = 1, refused: LeaseRefusal | None = None) -> GrantAnswered:
    return GrantAnswered(request=ID, attempt=attempt, lease=LEASE, refused=refused)


def pulled(attempt: int = 1, missing: int = 0) -> Pulled:
    return Pulled(
        request=ID, attempt=attempt, pulled_tokens=3, cached_tokens=0, missing_tokens=missing
    )


def lose(book: RequestBook, worker: str, now: float):
    return book.observe(HealthChanged(WorkerId(worker), Health.LOST), now)


def grant(owner: str, taker: str, attempt: int = 1) -> Grant:
    return Grant(
        request=ID,
        attempt=attempt,
        owner=WorkerId(owner),
        lease=LEASE,
        taker=WorkerId(taker),
    )


def split_router(*takers) -> ScriptedRouter:
    return ScriptedRouter(routes=[("p", "d")], takers=list(takers or ("d",)))


class Split:
    """A request of `n` sequences that P has computed and D is to go on with."""

    def __init__(self, router: ScriptedRouter | None = None, n: int = 1, **shape: object) -> None:
        self.router = router or split_router()
        self.book = book_of(self.router, "p", "q", "d", "e")
        self.request = request(n, **shape)
        self.start = self.book.start(self.request, 1.0)
        for sequence in range(n):
            self.book.heard(token(0, sequence), 2.0)
        self.offer: Offer = offer_of(self.request, worker_info("p"))

    def offered(self) -> "Split":
        self.commands = self.book.heard(self.offer, 3.0)
        return self

    def adopted(self) -> "Split":
        self.offered()
        self.commands = self.book.heard(answer(), 4.0)
        return self

    def decoding(self) -> "Split":
        self.adopted()
        assert self.book.heard(pulled(), 5.0) == ()
        return self


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


# ── deaths ───────────────────────────────────────────────────────────────────────────────────────


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


def started(attempt: int = 1) -> Started:
    return Started(request=ID, attempt=attempt, cached_tokens=0, queued_s=0.0)


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


def given_up(attempt: int = 1) -> AttemptFailed:
    return AttemptFailed(request=ID, attempt=attempt, message="the engine failed 3 times in a row")


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


# ── refusals and holds ───────────────────────────────────────────────────────────────────────────


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
