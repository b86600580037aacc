"""What the store has is fetched and not computed, by example. Pages of 2 tokens, blocks of 4."""

from dataclasses import replace

import pytest
from fetch_bench import LEASE, FetchBench, filled
from scheduler_bench import SETUP, ends, request, tokens

from antiphon.core.kv import tenant_of
from antiphon.core.scheduler import Parts
from antiphon.errors import BugError
from antiphon.testing.strategies import Hopeful
from antiphon.types import (
    Aborted,
    BlockRemoved,
    BlockStored,
    Fetched,
    FinishReason,
    LeaseId,
    Preempted,
    Prefilled,
    Rejected,
    RejectReason,
    RequestId,
    SequenceFault,
    Started,
    StepResult,
)

PROMPT = tuple(range(1, 14))
"""Three blocks and a token."""
R = RequestId("r")


def fetched(count: int, missing: int = 0, problem: str = "") -> Fetched:
    return Fetched(
        request=R, attempt=1, fetched_tokens=count, missing_tokens=missing, problem=problem
    )


def started(cached: int, stored: int) -> Started:
    return Started(request=R, attempt=1, cached_tokens=cached, stored_tokens=stored, queued_s=0.0)


# ── the common case ───────────────────────────────────────────────────────────────────────────


def test_a_prompt_that_the_store_has_is_fetched_but_for_its_last_token() -> None:
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT))
    fetch = bench.begin()
    assert (fetch.request, fetch.attempt, len(fetch.keys)) == (R, 1, 3)
    assert fetch.tenant == tenant_of(b"")
    pages = [page for block in fetch.targets for page in block]
    assert len(pages) == len(set(pages)) == 6
    view = bench.scheduler.view(0.0)
    assert (view.pulling, view.waiting, view.running, view.held_pages) == (1, 0, 0, 7)
    assert bench.scheduler.fetches() == [], "each is said once"
    assert bench.end(fetch) == [fetched(12), started(12, 12)]
    plan, events = bench.turn()
    assert [(chunk.start, chunk.tokens) for chunk in plan.chunks] == [(12, PROMPT[12:])]
    assert tokens(events) == [(0, 9)]
    view = bench.scheduler.view(0.0)
    assert (view.prefix_queried_tokens_total, view.prefix_hit_tokens_total) == (13, 0)
    assert view.fetched_tokens_total == 12


def test_at_least_one_token_is_computed_though_the_store_has_all() -> None:
    bench = FetchBench(filled(PROMPT[:12]))
    bench.add(request(prompt=PROMPT[:12]))
    fetch = bench.begin()
    assert len(fetch.keys) == 2
    assert bench.end(fetch) == [fetched(8), started(8, 8)]
    bench.finish()


def test_what_is_here_already_is_not_fetched() -> None:
    bench = FetchBench(filled(PROMPT))
    bench.add(request("short", prompt=(*PROMPT[:4], 7)), 0)
    bench.finish()
    bench.add(request(prompt=PROMPT))
    fetch = bench.begin()
    assert len(fetch.keys) == 2
    assert bench.end(fetch) == [fetched(8), started(12, 8)]
    view = bench.scheduler.view(0.0)
    assert view.prefix_hit_tokens_total == 4
    bench.finish()


@pytest.mark.parametrize("fetch", [-5, 0, 3, 8, 11], ids=str)
def test_a_fetch_that_brings_no_block_more_than_is_here_is_not_begun(fetch: int) -> None:
    """LMCache 1938: the store was asked for what the engine had, and made it slower."""
    bench = FetchBench(filled(PROMPT))
    bench.add(request("short", prompt=(*PROMPT[:8], 7)), 0)
    bench.finish()
    bench.add(request(prompt=PROMPT), fetch)
    _, events = bench.turn()
    assert events[0] == started(8, 0)
    assert bench.scheduler.fetches() == []


def test_what_was_fetched_is_named_and_found_by_the_next() -> None:
    store, stored = filled(PROMPT), []
    blocks = len(store)
    bench = FetchBench(store)
    listen = bench.side.listen
    bench.scheduler = SETUP.build(lambda event: (stored.append(event), listen(event)))
    bench.add(request(prompt=PROMPT))
    fetch = bench.begin()
    bench.end(fetch)
    assert [event.key for event in stored] == list(fetch.keys)
    assert [event.pages for event in stored] == list(fetch.targets)
    assert [event.tokens for event in stored] == [PROMPT[:4], PROMPT[4:8], PROMPT[8:12]]
    assert {event.tenant for event in stored} == {tenant_of(b"")}
    assert [event.parent for event in stored] == [None, *fetch.keys[:2]]
    bench.add(request("next", prompt=PROMPT))
    _, events = bench.turn()
    assert [event.cached_tokens for event in events if isinstance(event, Started)] == [12]
    bench.finish()
    assert len(store) == blocks, "what it has is not put twice"


def test_without_a_prefix_cache_nothing_is_fetched() -> None:
    bench = FetchBench(filled(PROMPT), replace(SETUP, kv=replace(SETUP.kv, prefix_cache=False)))
    bench.add(request(prompt=PROMPT))
    _, events = bench.turn()
    assert events[0] == started(0, 0) and bench.scheduler.fetches() == []


def test_another_tenants_blocks_are_other_blocks() -> None:
    """LMCache 4825, SGLang 37160: a salt that was dropped let one tenant see another's cache."""
    bench = FetchBench(filled(PROMPT))
    bench.add(replace(request(prompt=PROMPT), tenant_salt=b"other"))
    fetch = bench.begin()
    assert fetch.tenant == tenant_of(b"other") != tenant_of(b"")
    assert bench.end(fetch) == [fetched(0, missing=12), started(0, 0)]
    bench.finish()


# ── what does not come ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("lost", "count"), [({0}, 0), ({1}, 4), ({2}, 8), ({0, 1, 2}, 0)])
def test_blocks_from_the_first_lost_one_on_are_computed(lost: set[int], count: int) -> None:
    """LMCache 3388: a load failed, and the engine took its blocks for loaded all the same."""
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT))
    events = bench.end(bench.begin(), lost)
    assert events == [fetched(count, 12 - count, "lost"), started(count, count)]
    plan, _ = bench.turn()
    assert plan.chunks[0].start == count
    assert ends(bench.finish()) == [(0, FinishReason.LENGTH)]


def test_an_empty_store_costs_nothing_but_the_wait() -> None:
    """LMCache 1810, Mooncake 935: a store that is gone is a miss, and the text is the same."""
    bench = FetchBench()
    bench.add(request(prompt=PROMPT))
    events = [*bench.end(bench.begin()), *bench.finish()]
    assert tokens(events) == [(index, 9) for index in range(4)]
    assert bench.scheduler.view(0.0).held_pages == 0


def test_an_answer_has_a_flag_for_each_block_and_comes_once() -> None:
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT))
    bench.begin()
    with pytest.raises(BugError, match="a fetch of r, attempt 1, ends but is not under way"):
        bench.scheduler.fetched(R, 1, (True,), 0.0)
    with pytest.raises(BugError, match="a pull of r, attempt 1, ends but is not under way"):
        bench.scheduler.pulled(R, 1, (True,) * 3, 0.0)
    with pytest.raises(BugError, match="attempt 2"):
        bench.scheduler.fetched(R, 2, (True,) * 3, 0.0)
    bench.scheduler.fetched(R, 1, (False,) * 3, 0.0)
    with pytest.raises(BugError, match="not under way"):
        bench.scheduler.fetched(R, 1, (False,) * 3, 0.0)


# ── ends while blocks are on their way ────────────────────────────────────────────────────────


def test_an_abort_keeps_the_pages_until_the_fetch_is_over() -> None:
    """vLLM 46283: an abort while KV was on its way leaked the blocks, or let them be written."""
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT))
    fetch = bench.begin()
    assert bench.scheduler.abort(R, 0.0) == Aborted(request=R, sequences=(0,))
    view = bench.scheduler.view(0.0)
    assert (view.held_pages, view.pulling, view.waiting) == (7, 0, 0)
    answer = bench.scheduler.add(request(prompt=PROMPT), 0.0)
    assert isinstance(answer, Rejected) and answer.reason is RejectReason.DUPLICATE
    assert bench.end(fetch) == []
    view = bench.scheduler.view(0.0)
    assert (view.held_pages, view.fetched_tokens_total) == (0, 0)
    bench.add(request(prompt=PROMPT))
    bench.finish()


def test_a_deadline_while_blocks_are_on_their_way_ends_the_request() -> None:
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT, deadline=0.5))
    fetch = bench.begin()
    (end,) = bench.scheduler.expire(0.5)
    assert ends([end]) == [(0, FinishReason.DEADLINE)]
    assert bench.end(fetch) == [] and bench.scheduler.view(0.0).held_pages == 0


def test_a_later_attempt_may_fetch_while_the_earlier_ones_fetch_is_under_way() -> None:
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT))
    first = bench.begin()
    bench.add(request(prompt=PROMPT, attempt=2))
    (end,) = bench.scheduler.expire(0.0)
    assert (end.attempt, end.reason) == (1, FinishReason.ABORTED)
    second = bench.begin()
    assert not {*sum(first.targets, ())} & {*sum(second.targets, ())}
    assert bench.end(first) == []
    assert [event.attempt for event in bench.end(second)] == [2, 2]
    bench.finish()
    assert bench.scheduler.view(0.0).held_pages == 0


def test_one_of_several_may_end_while_blocks_are_on_their_way() -> None:
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT, n=3))
    fetch = bench.begin()
    assert bench.scheduler.abort(R, 0.0, 0) == Aborted(request=R, sequences=(0,))
    assert bench.end(fetch) == [fetched(12), started(12, 12)]
    events = bench.finish()
    assert ends(events) == [(1, FinishReason.LENGTH), (2, FinishReason.LENGTH)]
    assert bench.scheduler.view(0.0).held_pages == 0


# ── kinds of requests ─────────────────────────────────────────────────────────────────────────


def test_several_sequences_fetch_their_prompt_once() -> None:
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT, n=2))
    bench.end(bench.begin())
    plan, events = bench.turn()
    assert [(chunk.start, chunk.samples) for chunk in plan.chunks] == [(12, (0, 1))]
    assert len(ends([*events, *bench.finish()])) == 2


def test_what_an_earlier_attempt_generated_is_fetched_too() -> None:
    """A failover: what its first worker had put goes on at the next one."""
    store = filled(PROMPT, max_tokens=8)
    bench = FetchBench(store)
    bench.add(request(prompt=PROMPT, resumed=((9,) * 6,), attempt=1, max_tokens=8))
    fetch = bench.begin()
    assert len(fetch.keys) == 4
    assert bench.end(fetch) == [fetched(16), started(13, 12 + 1)]
    plan, events = bench.turn()
    assert (plan.chunks[0].start, tokens(events)) == (16, [(6, 9)])


def test_sequences_that_go_on_start_together_and_share_what_is_fetched() -> None:
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT, n=3, resumed=((9,), (8, 8), ()), max_tokens=5))
    fetch = bench.begin()
    assert len(fetch.keys) == 3
    bench.end(fetch)
    events = bench.finish()
    assert [index for index, _ in tokens(events, 0)] == [1, 2, 3, 4]
    assert [index for index, _ in tokens(events, 1)] == [2, 3, 4]
    assert [index for index, _ in tokens(events, 2)] == [0, 1, 2, 3, 4]
    assert bench.scheduler.view(0.0).held_pages == 0


def test_a_prompt_that_is_computed_for_others_is_fetched_and_offered() -> None:
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT), lease=LEASE)
    fetch = bench.begin()
    bench.end(fetch)
    _, events = bench.turn()
    (offer,) = (event for event in events if isinstance(event, Prefilled))
    assert offer.sequences[0].table[:6] == sum(fetch.targets, ())
    assert bench.scheduler.view(0.0).offered_pages == 7
    assert bench.scheduler.abort(R, 0.0) == Aborted(request=R, sequences=())
    assert bench.scheduler.view(0.0).held_pages == 0


def test_pages_of_a_fetch_count_as_promised_to_takers() -> None:
    bench = FetchBench(filled(PROMPT), replace(SETUP, pages=20))
    bench.add(request(prompt=PROMPT), lease=LEASE)
    fetch = bench.begin()
    other = request("other", prompt=(8,) * 9)
    bench.add(other, 0, lease=LeaseId("second"))
    assert bench.scheduler.step(0.0) is None and bench.scheduler.deferred is not None
    assert "7 pages are promised, 5 more exceed 10" in bench.scheduler.deferred.message
    bench.scheduler.abort(R, 0.0)
    bench.end(fetch)
    plan, _ = bench.turn()
    assert plan.chunks[0].request.id == "other"
    assert LEASE not in bench.scheduler.leases


# ── others ────────────────────────────────────────────────────────────────────────────────────


def test_others_run_while_blocks_are_on_their_way() -> None:
    """LMCache 2334: a slow store stalled the engine for everybody."""
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT))
    fetch = bench.begin()
    bench.add(request("other", prompt=(7, 7, 7)), 0)
    assert ends(bench.finish()) == [(0, FinishReason.LENGTH)]
    bench.end(fetch)
    assert ends(bench.finish()) == [(0, FinishReason.LENGTH)]


def test_blocks_come_while_the_step_before_computes() -> None:
    """A step computes 16 tokens. With 25 before it, a prompt waits, but for its fetch."""
    for fetch, begun in ((12, 1), (0, 0)):
        bench = FetchBench(filled(PROMPT))
        bench.add(request("long", prompt=(7,) * 25), 0)
        bench.add(request(prompt=PROMPT), fetch)
        bench.turn()
        fetches = bench.scheduler.fetches()
        assert len(fetches) == begun
        for one in fetches:
            bench.end(one)
        plan, _ = bench.turn()
        chunks = {one.request.id: (one.start, len(one.tokens)) for one in plan.chunks}
        assert chunks == {"long": (16, 9), "r": (12, 1) if begun else (0, 7)}


def test_only_what_is_not_fetched_counts_as_work() -> None:
    """Behind a fetch of 12 tokens of 13 there is room for 15 in a step of 16."""
    bench = FetchBench(filled(PROMPT))
    bench.add(request(prompt=PROMPT))
    assert bench.scheduler.view(0.0).waiting_tokens == 0
    bench.add(request("far", prompt=(*PROMPT, *(5,) * 7)), 12)
    assert bench.scheduler.view(0.0).waiting_tokens == 8
    assert bench.scheduler.step(0.0) is None
    assert bench.scheduler.view(0.0).waiting_tokens == 8
    assert len(bench.scheduler.fetches()) == 2


def test_a_fetch_that_memory_has_no_room_for_waits_like_any_other() -> None:
    bench = FetchBench(filled(PROMPT), replace(SETUP, pages=10))
    bench.add(request("large", prompt=(7,) * 14, max_tokens=2), 0)
    bench.turn()
    bench.add(request(prompt=PROMPT))
    bench.turn()
    assert bench.scheduler.fetches() == []
    fetch = bench.begin()
    bench.end(fetch)
    bench.finish()


def test_who_fetched_may_give_way_and_does_not_fetch_again() -> None:
    """What the gateway believed at first is old by then; what is gone is computed."""
    setup = replace(SETUP, pages=13, parts=Parts(admission=Hopeful))
    bench = FetchBench(filled(PROMPT), setup)
    bench.add(request("old", prompt=(7, 7, 7), max_tokens=14), 0)
    bench.turn()
    bench.add(request(prompt=PROMPT, max_tokens=8))
    bench.turn()
    events = [*bench.end(*bench.scheduler.fetches()), *bench.finish()]
    assert [event.request for event in events if isinstance(event, Preempted)] == [R]
    assert len([event for event in events if isinstance(event, Fetched | Started)]) == 2
    assert ends(events) == [(0, FinishReason.LENGTH)] * 2
    assert bench.scheduler.view(0.0).held_pages == 0


def test_blocks_whose_computation_failed_are_said_to_be_doubtful() -> None:
    """A block with bad numbers that was put before they showed would poison each later fetch."""
    said: list = []
    bench = FetchBench()
    bench.scheduler = SETUP.build(said.append)
    bench.add(request(prompt=PROMPT, max_tokens=8), 0)
    bench.turn()
    plan = bench.scheduler.step(0.0)
    assert plan is not None
    fault = SequenceFault(R, 0, "not finite")
    bench.scheduler.complete(plan, StepResult(number=plan.number, samples=(), faults=(fault,)), 0.0)
    stored = [event.key for event in said if isinstance(event, BlockStored)]
    gone = [event for event in said if isinstance(event, BlockRemoved)]
    assert len(stored) == 3
    assert [(event.key, event.doubtful) for event in gone] == [(key, True) for key in stored]
