"""Prefill for others, and attempts, by example."""

from dataclasses import replace

import pytest
from handover_pair import TAKER, Pair, adopted
from scheduler_bench import SETUP, Bench, ends, request, tokens

from antiphon.core.scheduler import DeferReason
from antiphon.errors import BugError
from antiphon.testing.strategies import EOS
from antiphon.types import (
    Aborted,
    Admitted,
    FinishReason,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    OfferedSequence,
    Prefilled,
    Pulled,
    Rejected,
    RejectReason,
    RequestId,
    SchedulerConfig,
    SequenceKey,
    Stage,
    Started,
    Unknown,
)

LEASE = LeaseId("lease")
PROMPT = (1, 2, 3, 4, 5, 6, 7)


def prefill(bench: Bench, one, lease: LeaseId = LEASE) -> None:
    assert isinstance(bench.scheduler.add(one, 0.0, Stage.PREFILL, lease), Admitted)


# ── prefill ───────────────────────────────────────────────────────────────────────────────────


def test_a_prefill_ends_with_its_first_token_and_an_offer() -> None:
    bench = Bench()
    prefill(bench, request(prompt=PROMPT))
    plan, events = bench.turn()
    started, token, offered = events
    assert isinstance(started, Started) and tokens([token]) == [(0, 9)]
    table = plan.chunks[0].new_pages
    assert offered == Prefilled(
        request=RequestId("r"),
        attempt=1,
        lease=LEASE,
        sequences=(OfferedSequence(0, len(PROMPT), table),),
    )
    view = bench.scheduler.view(0.0)
    assert (view.running, view.waiting, view.leases, view.offered_pages) == (0, 0, 1, 4)
    assert view.held_pages == 4
    assert bench.scheduler.step(0.0) is None
    bench.add(request("next"))
    assert bench.step().ended == (SequenceKey(RequestId("r"), 0),)


def test_what_ends_with_its_first_token_is_not_offered() -> None:
    bench = Bench()
    bench.tokens["r", 0] = EOS
    prefill(bench, request(prompt=PROMPT, n=2, eos_token_ids=(EOS,)))
    _, events = bench.turn()
    assert ends(events) == [(0, FinishReason.STOP)]
    (offered,) = (one for one in events if isinstance(one, Prefilled))
    assert [one.sequence for one in offered.sequences] == [1]
    bench.tokens["x", 0] = EOS
    prefill(bench, request("x", prompt=PROMPT, eos_token_ids=(EOS,)), LeaseId("other"))
    _, events = bench.turn()
    assert ends(events) == [(0, FinishReason.STOP)] and len(bench.scheduler.leases) == 1


def test_fresh_sequences_share_all_pages_and_resumed_ones_the_prompts_blocks() -> None:
    bench = Bench()
    prefill(bench, request(prompt=PROMPT, n=3, resumed=((), (8, 8, 8), ()), max_tokens=9))
    events = []
    while not isinstance(events[-1:] and events[-1], Prefilled):
        events += bench.turn()[1]
    first, second, third = events[-1].sequences
    assert (first.tokens, second.tokens, third.tokens) == (7, 10, 7)
    assert first.table == third.table and len(second.table) == 5
    assert first.table[:2] == second.table[:2] and not set(first.table[2:]) & set(second.table[2:])
    assert tokens(events, 1) == [(3, 9)]
    assert bench.scheduler.leases.release(LEASE, 0.0) == LeaseHeld(LEASE)
    assert bench.scheduler.view(0.0).held_pages == 0


def test_sequences_that_are_done_are_neither_run_nor_reported() -> None:
    bench = Bench()
    one = replace(request(prompt=PROMPT, n=2, resumed=((5,), (6,)), max_tokens=3), done=(0,))
    bench.add(one)
    events = bench.finish()
    assert tokens(events, 0) == [] and tokens(events, 1) == [(1, 9), (2, 9)]
    assert ends(events) == [(1, FinishReason.LENGTH)]


@pytest.mark.parametrize("done", [(0, 1), (2,), (-1,), (0, 0)])
def test_done_must_name_some_sequences(done: tuple[int, ...]) -> None:
    answer = Bench().scheduler.add(replace(request(n=2), done=done), 0.0)
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.field) == (RejectReason.INVALID, "done")


def test_complete_blocks_stay_in_the_prefix_cache_after_the_lease() -> None:
    bench = Bench()
    prefill(bench, request(prompt=PROMPT))
    bench.turn()
    bench.scheduler.leases.release(LEASE, 0.0)
    view = bench.scheduler.view(0.0)
    assert (view.held_pages, view.cached_pages) == (0, 2)


def test_offers_and_prefills_stay_within_half_of_the_memory() -> None:
    bench = Bench(replace(SETUP, pages=20))
    for number, size in enumerate((10, 8, 6)):
        prompt = (number + 1,) * size
        prefill(bench, request(f"r{number}", prompt=prompt), LeaseId(f"lease{number}"))
    bench.turn()
    bench.turn()
    view = bench.scheduler.view(0.0)
    assert (view.offered_pages, view.waiting, view.running) == (9, 1, 0)
    assert (
        bench.scheduler.deferred is not None
        and bench.scheduler.deferred.reason is DeferReason.OFFERS
    )
    assert bench.scheduler.step(0.0) is None, "nothing is to be done until somebody takes it"
    bench.scheduler.leases.release(LeaseId("lease1"), 0.0)
    bench.turn()
    assert bench.scheduler.view(0.0).offered_pages == 8


def test_more_than_half_of_the_memory_is_too_long_and_says_so() -> None:
    bench = Bench(replace(SETUP, pages=20))
    answer = bench.scheduler.add(request(prompt=(1,) * 20), 0.0, Stage.PREFILL, LEASE)
    assert isinstance(answer, Rejected) and answer.reason is RejectReason.TOO_LONG
    assert "half of the KV memory, 10 pages" in answer.message and "run the request whole" in (
        answer.message
    )
    assert isinstance(bench.scheduler.add(request(prompt=(1,) * 20), 0.0), Admitted)


def test_who_keeps_its_kv_passes_those_who_wait_for_takers() -> None:
    bench = Bench(replace(SETUP, pages=20))
    prefill(bench, request("a", prompt=(1,) * 16), LeaseId("a"))
    prefill(bench, request("b", prompt=(2,) * 16), LeaseId("b"))
    bench.add(request("c", prompt=(3,) * 8, max_tokens=2))
    events = bench.finish()
    assert (0, FinishReason.LENGTH) in ends(events)
    assert bench.scheduler.view(0.0).waiting == 1


def test_a_prefill_without_a_lease_is_a_bug() -> None:
    with pytest.raises(BugError, match="lease"):
        Bench().scheduler.add(request(), 0.0, Stage.PREFILL)


def test_ten_cancelled_long_prompts_delay_the_next_request_by_one_chunk() -> None:
    """Dynamo 13088 and its like: cancelled prefills kept the next prompt waiting for a minute."""
    bench = Bench(replace(SETUP, pages=400, config=SchedulerConfig(max_batched_tokens=8)))
    for number in range(10):
        long = request(f"long{number}", prompt=(number % 4 + 1,) * 28)
        prefill(bench, long, LeaseId(f"l{number}"))
    plan = bench.step()
    for number in range(10):
        answer = bench.scheduler.abort(RequestId(f"long{number}"), 0.0)
        assert answer == Aborted(request=RequestId(f"long{number}"), sequences=(0,))
    prefill(bench, request("next"), LeaseId("next"))
    bench.scheduler.complete(plan, bench.engine.forward(plan), 0.0)
    assert [chunk.request.id for chunk in bench.step().chunks] == ["next"]


def test_an_abort_ends_the_lease_of_an_offered_request_once() -> None:
    """vLLM 41269: whatever ends a request has to free what was offered of it."""
    bench = Bench()
    prefill(bench, request(prompt=PROMPT, n=2))
    bench.turn()
    id = RequestId("r")
    assert bench.scheduler.abort(id, 0.0, 1) == Unknown(request=id)
    assert bench.scheduler.abort(id, 0.0) == Aborted(request=id, sequences=())
    assert bench.scheduler.abort(id, 0.0) == Unknown(request=id)
    view = bench.scheduler.view(0.0)
    assert (view.held_pages, view.leases) == (0, 0)


def test_an_offer_that_nobody_renews_expires_and_its_pages_return() -> None:
    bench = Bench()
    prefill(bench, request(prompt=PROMPT))
    bench.turn()
    ttl_s = bench.scheduler.leases.ttl_s
    assert bench.scheduler.next_deadline() == ttl_s
    assert bench.scheduler.expire(ttl_s) == []
    assert bench.scheduler.view(0.0).held_pages == 0
    gone = LeaseRefused(LEASE, LeaseRefusal.GONE)
    assert bench.scheduler.leases.grant(LEASE, TAKER, 1, ttl_s) == gone


def test_when_the_last_of_a_party_is_aborted_the_rest_is_offered() -> None:
    bench = Bench(replace(SETUP, config=replace(SETUP.config, max_batched_tokens=8)))
    prefill(bench, request(prompt=PROMPT, n=2, resumed=((), (8,) * 12), max_tokens=20))
    bench.turn()
    bench.turn()
    assert bench.scheduler.abort(RequestId("r"), 0.0, 1) != Unknown(request=RequestId("r"))
    assert bench.scheduler.next_deadline() == 0.0
    (offered,) = bench.scheduler.expire(0.0)
    assert isinstance(offered, Prefilled) and [one.sequence for one in offered.sequences] == [0]


def test_a_party_that_ends_before_its_offer_is_said_leaves_no_lease() -> None:
    """Said of pages that nobody keeps any more, an offer would break its worker's laws."""
    bench = Bench(replace(SETUP, config=replace(SETUP.config, max_batched_tokens=8)))
    prefill(bench, request(prompt=PROMPT, n=2, resumed=((), (8,) * 12), max_tokens=20))
    bench.turn()
    bench.turn()
    id = RequestId("r")
    assert bench.scheduler.abort(id, 0.0, 1) == Aborted(request=id, sequences=(1,))
    assert bench.scheduler.abort(id, 0.0) == Aborted(request=id, sequences=(0,))
    assert bench.scheduler.expire(0.0) == []
    view = bench.scheduler.view(0.0)
    assert (view.held_pages, view.leases) == (0, 0)


# ── attempts ──────────────────────────────────────────────────────────────────────────────────


def later(one):
    return replace(one, attempt=one.attempt + 1)


@pytest.mark.parametrize("steps", [0, 1, 2], ids=["waiting", "running", "parked in part"])
def test_a_later_attempt_ends_the_earlier_one_though_its_abort_was_lost(steps: int) -> None:
    bench = Bench(replace(SETUP, config=replace(SETUP.config, max_batched_tokens=8)))
    one = request(prompt=PROMPT, n=2, resumed=((), (8,) * 12), max_tokens=20)
    prefill(bench, one)
    for _ in range(steps):
        bench.turn()
    bench.add(later(one))
    assert bench.scheduler.next_deadline() == 0.0
    said = bench.scheduler.expire(0.0)
    assert [event.attempt for event in said] == [1, 1]
    assert ends(list(said)) == [(0, FinishReason.ABORTED), (1, FinishReason.ABORTED)]
    assert not bench.scheduler.has(one.id, 1) and bench.scheduler.has(one.id, 2)
    events = bench.finish()
    assert {event.attempt for event in events} == {2}
    assert len(ends(events)) == 2
    assert bench.scheduler.view(0.0).held_pages == 0


def test_a_later_attempt_does_not_wait_for_the_step_that_computes_the_earlier_one() -> None:
    bench = Bench()
    one = request()
    bench.add(one)
    plan = bench.step()
    bench.add(later(one))
    said = list(bench.scheduler.complete(plan, bench.engine.forward(plan), 0.0))
    assert ends(said) == [(0, FinishReason.ABORTED)] and not tokens(said)
    assert [index for index, _ in tokens(bench.finish())] == [0, 1, 2, 3]
    assert bench.scheduler.view(0.0).held_pages == 0


def test_a_later_attempt_may_come_while_pages_of_the_earlier_one_are_pulled() -> None:
    pair = Pair(SETUP)
    entry = adopted(pair, request(prompt=PROMPT))
    pair.step(pair.decode)
    scheduler = pair.decode.scheduler
    again = replace(entry.request, resumed=(tuple(entry.tokens[0]),), attempt=2)
    assert isinstance(scheduler.adopt(again, entry.offer, 0.0), Admitted)
    (end,) = scheduler.expire(0.0)
    assert (end.attempt, end.reason) == (1, FinishReason.ABORTED)
    assert scheduler.pulled(entry.request.id, 1, (True,) * 4, 0.0) == []
    assert scheduler.step(0.0) is None
    (pull,) = scheduler.pulls()
    assert pull.attempt == 2
    (pulled,) = scheduler.pulled(entry.request.id, 2, (True,) * len(pull.pages), 0.0)
    assert isinstance(pulled, Pulled) and pulled.missing_tokens == 0


def test_an_earlier_or_equal_attempt_is_refused_and_changes_nothing() -> None:
    bench = Bench()
    bench.add(request(attempt=3))
    for attempt in (2, 3):
        answer = bench.scheduler.add(request(attempt=attempt), 0.0)
        assert isinstance(answer, Rejected) and answer.reason is RejectReason.DUPLICATE
        assert answer.attempt == attempt
    assert {event.attempt for event in bench.finish()} == {3}
