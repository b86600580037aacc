"""Bounds against sums by hand, against a queue, and against what the simulator finds."""

import heapq
import random
from dataclasses import replace

import pytest
from placing_kit import FAST, SLOW, STEP_S, TOKEN_S, case, kind

from antiphon.core.placement import Colocated, Instance, Split, bound_of
from antiphon.perf.published_times import published_times
from antiphon.sim.placing import PhaseBounds, PlacementCase, WorkerKind
from antiphon.types import Slo

IN, OUT = 200, 8


def bounds(of: PlacementCase, *kinds: WorkerKind, most: int = 256) -> PhaseBounds:
    return PhaseBounds(kinds or of.kinds, of.shape, of.slo, max_sequences=most)


def full_steps() -> float:
    """Prompts a second of a worker that never waits for one."""
    uncached = round(case().shape.uncached)
    prompts = 512 // uncached
    return prompts / (STEP_S + prompts * uncached * TOKEN_S)


def test_prefill_is_bounded_by_full_steps() -> None:
    of = bounds(case())
    each = [of.prefill_per_s(SLOW.instance, 512, workers) / workers for workers in (1, 2, 8, 100)]
    assert each == sorted(each)
    assert 0.5 * full_steps() < each[0]
    assert 0.95 * full_steps() < each[-1] < full_steps()
    assert of.prefill_per_s(FAST.instance, 512) > 2 * each[0]


def late_share(rate: float, workers: int, service_s: float, spare_s: float) -> float:
    """Of Poisson arrivals at one queue for so many workers: who waits longer than that."""
    chance, now, late, calls = random.Random(5), 0.0, 0, 30_000
    free_at = [0.0] * workers
    for _ in range(calls):
        now += chance.expovariate(rate)
        begin = max(now, heapq.heappop(free_at))
        late += begin - now > spare_s
        heapq.heappush(free_at, begin + service_s)
    return late / calls


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("ttft_s", [0.35, 0.6, 1.0, 3.0])
def test_at_the_bound_one_call_in_ten_waits_too_long(workers: int, ttft_s: float) -> None:
    of = case(slo=Slo(ttft_s=ttft_s, tpot_s=0.3))
    rate = bounds(of).prefill_per_s(SLOW.instance, 512, workers)
    alone_s = STEP_S + round(of.shape.uncached) * TOKEN_S
    assert late_share(rate, workers, 1 / full_steps(), ttft_s - alone_s) < 0.2
    assert late_share(1.2 * rate, workers, 1 / full_steps(), ttft_s - alone_s) > 0.1


def test_prompts_that_are_late_alone_serve_nothing() -> None:
    tight = case(slo=Slo(ttft_s=0.2, tpot_s=0.3))
    assert bounds(tight).prefill_per_s(SLOW.instance, 512) == 0
    assert bounds(tight).prefill_per_s(FAST.instance, 512) > 0
    assert bounds(tight).mixed_per_s(SLOW.instance, 512, prefill_first=False) == 0


def test_decode_is_bounded_by_the_target_and_by_memory() -> None:
    tight = case(slo=Slo(ttft_s=1.0, tpot_s=0.05))
    # 20 ms + n · 1 ms ≤ 50 ms
    batch = 30
    free = bounds(tight).decode_per_s(SLOW.instance)
    assert free == pytest.approx(batch / ((OUT - 1) * (STEP_S + batch * TOKEN_S)))
    small = kind("small", kv_tokens=round(10.5 * tight.shape.context))
    full = bounds(tight, small).decode_per_s(small.instance)
    assert full == pytest.approx(10 / ((OUT - 1) * (STEP_S + 10 * TOKEN_S)))
    few = bounds(tight, SLOW, most=5).decode_per_s(SLOW.instance)
    assert few == pytest.approx(5 / ((OUT - 1) * (STEP_S + 5 * TOKEN_S)))


def test_a_worker_that_does_both_serves_less_than_one_that_does_either() -> None:
    of = bounds(case())
    for first in (False, True):
        both = of.mixed_per_s(SLOW.instance, 512, prefill_first=first)
        assert 0 < both < of.decode_per_s(SLOW.instance)
        # A shared step costs its 20 ms once for both, so decodes come nearly free of charge.
        assert both <= full_steps() * 1.001


def test_a_budget_that_starves_prompts_serves_nothing() -> None:
    # Each answer of seven steps brings 200 tokens of a prompt: 28 tokens a step for each decode.
    assert bounds(case()).mixed_per_s(SLOW.instance, 20, prefill_first=False) == 0


@pytest.mark.parametrize(
    "candidate",
    [
        Colocated(instance=Instance(device="slow"), workers=1, step_tokens=512),
        Colocated(instance=Instance(device="fast"), workers=1, step_tokens=512, prefill_first=True),
        Split(
            prefill=Instance(device="fast"),
            prefill_workers=1,
            decode=Instance(device="slow"),
            decode_workers=1,
            step_tokens=512,
        ),
    ],
    ids=lambda one: one.text,
)
def test_the_simulator_finds_no_more(candidate: Colocated | Split) -> None:
    judged = case(calls=100)
    bound = bound_of(bounds(judged), candidate)
    found = judged.goodput(candidate, 0, 0.8 * bound)
    # A short run may end before an overload shows: a search allows for it by its slack.
    assert 0.3 * bound < found.rate_per_s <= 1.15 * bound


def staged(stages: int) -> WorkerKind:
    times = published_times("opt-13b", 1, stages)
    return WorkerKind(
        Instance(device="a100", pipeline=stages), times, 60_000, 1.0 * stages, 1e11, 1e11
    )


def test_stages_take_turns_at_prompts_and_none_makes_an_answer_faster() -> None:
    of = case()
    one, two = staged(1), staged(2)
    prompts = bounds(of, one, two).prefill_per_s(one.instance, 512)
    assert bounds(of, one, two).prefill_per_s(two.instance, 512) == pytest.approx(
        2 * prompts, rel=0.1
    )
    tight = case("fixed:input=20,output=200", slo=Slo(ttft_s=1.0, tpot_s=0.021))
    assert bounds(tight, one).decode_per_s(one.instance) > 0
    assert bounds(tight, two).decode_per_s(two.instance) == 0


def test_the_simulator_finds_no_more_of_stages_and_not_much_less() -> None:
    """A step with decodes takes all stages already: to count them twice left nothing here."""
    two = staged(2)
    of = replace(case("fixed:input=20,output=200", slo=Slo(ttft_s=1.0, tpot_s=0.024)), kinds=(two,))
    candidate = Split(
        prefill=two.instance,
        prefill_workers=1,
        decode=two.instance,
        decode_workers=1,
        step_tokens=512,
    )
    bound = bounds(of).decode_per_s(two.instance)
    found = of.goodput(candidate, 0, 0.8 * bound)
    assert 0.3 * bound < found.rate_per_s <= 1.15 * bound
