"""What is counted is what happened, and each interval begins anew."""

from dataclasses import replace
from statistics import fmean, pvariance

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_kit import IDLE_VIEW

from antiphon.core.planner import SteeredWorker, Watch, to_leave
from antiphon.types import Role, WorkerId

PREFILL, DECODE = Role.PREFILL, Role.DECODE
LENGTHS = st.lists(st.integers(1, 10**6), max_size=20)


def worker(role: Role = DECODE, ready_at: float = 0.0, **facts: object) -> SteeredWorker:
    return SteeredWorker(role, since=0.0, ready_at=ready_at, **facts)  # pyright: ignore


@given(LENGTHS, st.lists(st.tuples(st.integers(1, 99), st.integers(0, 9), st.integers(0, 50))))
@settings(deadline=None, max_examples=100)
def test_means_are_those_of_what_came_and_what_ended(
    prompts: list[int], ended: list[tuple[int, int, int]]
) -> None:
    watch = Watch((DECODE,), at=10.0)
    for length in prompts:
        watch.arrived(length)
    for prompt, cached, output in ended:
        watch.ended(prompt, cached, output or None)
    seen = watch.observe(14.0, {}, {}, (0, 0))
    answers = [output for _, _, output in ended if output]
    assert (seen.at, seen.seconds, seen.requests) == (14.0, 4.0, len(prompts))
    assert seen.input_tokens == (fmean(prompts) if prompts else 0.0)
    assert seen.output_tokens == (fmean(answers) if answers else 0.0)
    looked_up = sum(prompt for prompt, _, _ in ended)
    assert seen.hit_rate == sum(cached for _, cached, _ in ended) / max(1, looked_up)
    if prompts:
        assert seen.input_variation == pytest.approx(pvariance(prompts) / fmean(prompts) ** 2)
    again = watch.observe(15.0, {}, {}, (0, 0))
    assert (again.seconds, again.requests, again.input_tokens, again.hit_rate) == (1.0, 0, 0.0, 0.0)


def test_a_pool_is_counted_by_what_its_workers_are_on_their_way_to() -> None:
    """Ready, starting, draining and cold are four different things; a worker is one of them."""
    ids = [WorkerId(name) for name in "abcdefg"]
    workers = dict(
        zip(
            ids,
            [
                worker(),
                worker(ready_at=12.0),
                worker(pinned=True),
                worker(draining=True),
                worker(PREFILL, draining=True, becomes=DECODE),
                worker(draining=True, becomes=PREFILL),
                worker(PREFILL),
            ],
            strict=True,
        )
    )
    views = {id: IDLE_VIEW for id in ids if id != "c"}  # which is asked for, and pinned
    watch = Watch((PREFILL, DECODE), at=10.0)
    seen = watch.observe(15.0, workers, views, (3, 4))
    decode, prefill = seen.pool(DECODE), seen.pool(PREFILL)
    assert (decode.ready, decode.starting, decode.draining, decode.cold) == (2, 2, 1, 1)
    assert (decode.pinned, decode.held) == (1, 4)
    assert (prefill.ready, prefill.starting, prefill.draining, prefill.cold) == (1, 1, 0, 0)
    assert prefill.held == 3
    assert sum(one.ready + one.starting + one.draining for one in seen.pools) == len(workers)


def test_what_was_computed_is_that_of_warm_workers_in_the_interval() -> None:
    old, new = WorkerId("old"), WorkerId("new")
    workers = {old: worker(), new: worker(ready_at=11.0)}
    watch = Watch((DECODE,), at=10.0)
    done = replace(IDLE_VIEW, busy_s_total=5.0, steps_total=50, computed_tokens_total=500)
    first = watch.observe(12.0, workers, {old: done, new: done}, (0, 0)).pool(DECODE)
    assert (first.busy_s, first.steps, first.tokens) == (0.0, 0, 0), "nobody knows since when"
    more = replace(IDLE_VIEW, busy_s_total=7.0, steps_total=60, computed_tokens_total=520)
    second = watch.observe(14.0, workers, {old: more, new: done}, (0, 0)).pool(DECODE)
    assert (second.busy_s, second.steps, second.tokens) == (2.0, 10, 20)
    workers[new] = worker(ready_at=15.0)  # it has begun anew, from 0
    third = watch.observe(16.0, workers, {old: more, new: IDLE_VIEW}, (0, 0)).pool(DECODE)
    assert (third.busy_s, third.steps, third.cold) == (0.0, 0, 1)


def test_who_counts_less_than_before_has_begun_anew_though_nobody_says_so() -> None:
    id, other = WorkerId("crashed"), WorkerId("other")
    workers = {id: worker(), other: worker()}
    done = replace(IDLE_VIEW, busy_s_total=5.0, steps_total=50, computed_tokens_total=500)
    more = replace(IDLE_VIEW, busy_s_total=6.0, steps_total=60, computed_tokens_total=600)
    for fallen in (
        IDLE_VIEW,
        replace(more, busy_s_total=0.5),
        replace(more, steps_total=5),
        replace(more, computed_tokens_total=5),
    ):
        watch = Watch((DECODE,), at=10.0)
        watch.observe(12.0, workers, {id: done, other: done}, (0, 0))
        pool = watch.observe(14.0, workers, {id: fallen, other: more}, (0, 0)).pool(DECODE)
        assert (pool.busy_s, pool.steps, pool.tokens) == (1.0, 10, 100)
        assert (pool.ready, pool.cold) == (2, 1)
        again = watch.observe(16.0, workers, {id: more, other: more}, (0, 0)).pool(DECODE)
        assert (again.ready, again.cold) == (2, 0)


def test_running_is_a_mean_and_queues_are_what_they_are_at_the_end() -> None:
    id = WorkerId("a")
    watch = Watch((DECODE,), at=0.0)
    for running in (1, 2, 6):
        watch.sample(
            {id: worker()}, {id: replace(IDLE_VIEW, running_sequences=running, waiting=50)}
        )
    end = replace(IDLE_VIEW, waiting=2, pulling=3, waiting_tokens=70)
    pool = watch.observe(1.0, {id: worker()}, {id: end}, (0, 0)).pool(DECODE)
    assert (pool.running, pool.queued, pool.queued_tokens) == (3.0, 5, 70)


def test_those_with_least_to_do_leave_first_the_newest_among_equals() -> None:
    def one(since: float, **facts: object) -> SteeredWorker:
        return SteeredWorker(DECODE, since=since, ready_at=0.0, **facts)  # pyright: ignore

    workers = {
        WorkerId("busy"): one(9.0),
        WorkerId("old"): one(1.0),
        WorkerId("new"): one(5.0),
        WorkerId("same"): one(5.0),
        WorkerId("pinned"): one(9.0, pinned=True),
        WorkerId("drains"): one(9.0, draining=True),
        WorkerId("starts"): one(9.0),
        WorkerId("other"): worker(PREFILL),
    }
    views = {
        id: replace(IDLE_VIEW, running=3 if id == "busy" else 0) for id in workers if id != "starts"
    }
    assert to_leave(workers, views, DECODE, 9) == ["new", "same", "old", "busy"]
    assert to_leave(workers, views, DECODE, 1) == ["new"]
    assert to_leave(workers, views, DECODE, 0) == []
