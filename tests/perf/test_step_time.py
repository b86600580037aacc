"""The model's laws: never negative, more work never takes less time, parts add up."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.perf import FittedStepTime, Ramp, StepWork, work_of
from antiphon.types import Chunk, Request, RequestId, SamplingParams, StepPlan

slopes = st.floats(0, 1e3, allow_subnormal=False)


@st.composite
def ramps(draw: st.DrawFn) -> Ramp:
    knots = draw(st.lists(st.integers(1, 3000), unique=True, max_size=5))
    starts = (0, *sorted(knots))
    return Ramp(starts=starts, slopes_s=tuple(draw(slopes) for _ in starts))


models = st.builds(
    FittedStepTime,
    fixed_s=slopes,
    token=ramps(),
    sampled=ramps(),
    chunk_s=slopes,
    context_s=slopes,
    attention_s=slopes,
)


def chunk(start: int, length: int, sampled: bool, name: str = "r") -> Chunk:
    tokens = (0,) * (start + length)
    return Chunk(
        request=Request(id=RequestId(name), prompt=tokens, sampling=SamplingParams(seed=0)),
        sequence=0,
        tokens=tokens[start:],
        start=start,
        samples=(0,) if sampled else (),
    )


chunks = st.builds(chunk, st.integers(0, 300), st.integers(1, 70), st.booleans())
plans = st.lists(chunks, min_size=1, max_size=8).map(tuple)


def seconds(model: FittedStepTime, chunks: tuple[Chunk, ...]) -> float:
    return model.seconds(StepPlan(number=0, chunks=chunks))


@given(models, plans, chunks, st.data())
@settings(deadline=None, max_examples=200)
def test_more_work_never_takes_less_time(
    model: FittedStepTime, plan: tuple[Chunk, ...], more: Chunk, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(plan) - 1))
    old = plan[at]

    def changed(start: int, length: int, sampled: bool) -> tuple[Chunk, ...]:
        return (*plan[:at], chunk(start, length, sampled), *plan[at + 1 :])

    length, sampled = len(old.tokens), bool(old.samples)
    base = seconds(model, plan)
    assert base >= 0
    assert math.isfinite(base)
    for larger in (
        (*plan, more),
        changed(old.start, length + 1, sampled),
        changed(old.start + 1, length, sampled),
        changed(old.start, length, True),
    ):
        # Sums of the same parts in another order may differ in the last bits.
        assert seconds(model, larger) >= base * (1 - 1e-12)


@given(ramps(), st.integers(0, 5000))
@settings(deadline=None, max_examples=200)
def test_a_ramp_is_the_sum_of_its_units(ramp: Ramp, count: int) -> None:
    ends = (*ramp.starts[1:], 10**9)
    each = zip(ramp.starts, ends, ramp.slopes_s, strict=True)
    expected = sum(
        slope * len(range(min(start, count), min(end, count))) for start, end, slope in each
    )
    assert ramp.seconds(count) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(plans)
@settings(deadline=None, max_examples=100)
def test_work_is_what_the_definition_says_and_grows_chunk_by_chunk(plan: tuple[Chunk, ...]) -> None:
    work = StepWork()
    pairs = 0
    for part in plan:
        work = work.plus(part.start, len(part.tokens), sampled=bool(part.samples))
        pairs += sum(part.start + offset + 1 for offset in range(len(part.tokens)))
    assert work == work_of(StepPlan(number=0, chunks=plan))
    assert work.attention == pairs
    assert work.tokens == sum(len(part.tokens) for part in plan)
    assert work.context == sum(part.start + len(part.tokens) for part in plan)
    assert work.sampled == sum(1 for part in plan if part.samples)


def test_a_plan_that_computes_nothing_takes_no_time() -> None:
    model = FittedStepTime(
        fixed_s=1, token=RAMP, sampled=RAMP, chunk_s=1, context_s=1, attention_s=1
    )
    assert model.seconds(StepPlan(number=0, chunks=())) == 0


def test_distserve_s_forms_are_special_cases() -> None:
    """A + B·Σ length + C·Σ length² for prefill, A + B·Σ context + C·batch for decode."""
    flat = Ramp(starts=(0,), slopes_s=(0.0,))
    model = FittedStepTime(
        fixed_s=18.1, token=RAMP, sampled=flat, chunk_s=0.5, context_s=0, attention_s=0.001
    )
    prefill = model.seconds_of(StepWork().plus(0, 100, sampled=True))
    assert prefill == pytest.approx(18.1 + 0.5 + 2.0 * 100 + 0.001 * 100 * 101 / 2)
    model = replace(model, context_s=0.01)
    decodes = StepWork().plus(49, 1, sampled=True).plus(99, 1, sampled=True)
    assert model.seconds_of(decodes) == pytest.approx(18.1 + 0.011 * 150 + 2.5 * 2)


RAMP = Ramp(starts=(0,), slopes_s=(2.0,))


@pytest.mark.parametrize("bad", [-1.0, -1e-300, math.nan, math.inf])
def test_coefficients_are_finite_and_not_negative(bad: float) -> None:
    good = {"fixed_s": 0.0, "chunk_s": 0.0, "context_s": 0.0, "attention_s": 0.0}
    for name in good:
        with pytest.raises(ValueError, match=name):
            FittedStepTime(token=RAMP, sampled=RAMP, **good | {name: bad})
    with pytest.raises(ValueError, match="slopes_s"):
        Ramp(starts=(0,), slopes_s=(bad,))


@pytest.mark.parametrize("starts", [(), (1,), (0, 0), (0, 5, 3)])
def test_regimes_grow_from_zero(starts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="starts"):
        Ramp(starts=starts, slopes_s=(1.0,) * len(starts))


def test_a_regime_has_one_slope() -> None:
    with pytest.raises(ValueError, match="slopes_s"):
        Ramp(starts=(0, 4), slopes_s=(1.0,))
