"""Bounds against sums by hand, and against what the simulator finds."""

import pytest
from placing_kit import FAST, SLOW, STEP_S, TOKEN_S, case, kind

from antiphon.core.placement import Colocated, Instance, Split
from antiphon.sim.placing import PhaseBounds, PlacementCase
from antiphon.types import Slo

IN, OUT = 200, 8


def bounds(of: PlacementCase, *kinds, most: int = 256) -> PhaseBounds:
    return PhaseBounds(kinds or of.kinds, of.shape, of.slo, max_sequences=most)


def test_prefill_is_bounded_by_full_steps() -> None:
    shape = case().shape
    prompts = 512 // round(shape.uncached)
    expected = prompts / (STEP_S + prompts * round(shape.uncached) * TOKEN_S)
    found = bounds(case()).prefill_per_s(SLOW.instance, 512)
    assert found == pytest.approx(expected)
    assert bounds(case()).prefill_per_s(FAST.instance, 512) == pytest.approx(2 * found)


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
        assert both <= of.prefill_per_s(SLOW.instance, 512) * 1.001


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
    of, judged = bounds(case()), case()
    match candidate:
        case Colocated(instance=instance, prefill_first=first):
            bound = of.mixed_per_s(instance, 512, prefill_first=first)
        case Split(prefill=prefill, decode=decode):
            bound = min(of.prefill_per_s(prefill, 512), of.decode_per_s(decode))
    found = judged.goodput(candidate, 0, 0.8 * bound)
    # A short run may end before an overload shows: a search allows for it by its slack.
    assert 0.3 * bound < found.rate_per_s <= 1.15 * bound
