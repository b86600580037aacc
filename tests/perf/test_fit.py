"""The fit: exact on exact data, close on noisy data, no regime that only noise asks for."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.perf import (
    FittedStepTime,
    Limits,
    Measured,
    Ramp,
    accuracy,
    fit_step_time,
    grid,
    held_out,
)
from antiphon.perf.non_negative import non_negative_least_squares

LIMITS = Limits(max_model_len=4096, pages=4096, page_tokens=16)
GRID = [shape.work for shape in grid(LIMITS)]
UNSEEN = [shape.work for shape in held_out(LIMITS, 60, seed=5)]

TRUTH = FittedStepTime(
    fixed_s=8e-3,
    token=Ramp(starts=(0, 8, 64), slopes_s=(1e-4, 2.0e-3, 1.1e-3)),
    sampled=Ramp(starts=(0, 1), slopes_s=(3e-3, 2e-4)),
    chunk_s=5e-5,
    context_s=4e-7,
    attention_s=2e-9,
)

coefficient = st.floats(0.1, 10)


@st.composite
def truths(draw: st.DrawFn) -> FittedStepTime:
    """A plausible machine: every part matters, regimes differ."""
    knot = draw(st.sampled_from([4, 16, 64, 256]))
    slow, fast = draw(st.floats(1e-3, 3e-3)), draw(st.floats(1e-4, 5e-4))
    slopes_s = draw(st.permutations((slow, fast)))
    return FittedStepTime(
        fixed_s=1e-2 * draw(coefficient),
        token=Ramp(starts=(0, knot), slopes_s=tuple(slopes_s)),
        sampled=Ramp(starts=(0,), slopes_s=(1e-4 * draw(coefficient),)),
        chunk_s=1e-4 * draw(coefficient),
        context_s=1e-6 * draw(coefficient),
        attention_s=1e-8 * draw(coefficient),
    )


def steps_of(model: FittedStepTime, works=GRID, noise: float = 0.0, seed: int = 0):
    chance = random.Random(seed)
    return [Measured(work, model.seconds_of(work) * (1 + chance.gauss(0, noise))) for work in works]


@given(truths())
@settings(deadline=None, max_examples=25)
def test_exact_data_is_recovered(truth: FittedStepTime) -> None:
    found = fit_step_time(steps_of(truth))
    assert accuracy(found, steps_of(truth, UNSEEN)).worst < 1e-6
    for name in ("fixed_s", "chunk_s", "context_s", "attention_s"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=1e-4)


@given(truths(), st.integers(0, 1000))
@settings(deadline=None, max_examples=25)
def test_noise_does_not_spoil_what_was_not_measured(truth: FittedStepTime, seed: int) -> None:
    found = fit_step_time(steps_of(truth, noise=0.02, seed=seed))
    unseen = accuracy(found, steps_of(truth, UNSEEN))
    assert unseen.median < 0.02
    assert unseen.p95 < 0.06


def test_regimes_are_found_where_they_are() -> None:
    found = fit_step_time(steps_of(TRUTH))
    assert found.token.starts == TRUTH.token.starts
    assert found.sampled.starts == TRUTH.sampled.starts
    assert found.token.slopes_s == pytest.approx(TRUTH.token.slopes_s, rel=1e-4)
    assert found.sampled.slopes_s == pytest.approx(TRUTH.sampled.slopes_s, rel=1e-4)


def test_noise_alone_makes_hardly_any_regime() -> None:
    line = FittedStepTime(
        fixed_s=1e-2,
        token=Ramp(starts=(0,), slopes_s=(1e-3,)),
        sampled=Ramp(starts=(0,), slopes_s=(1e-4,)),
        chunk_s=0,
        context_s=1e-6,
        attention_s=1e-8,
    )
    knots = 0
    for seed in range(20):
        found = fit_step_time(steps_of(line, noise=0.05, seed=seed))
        knots += len(found.token.starts) + len(found.sampled.starts) - 2
    assert knots <= 15


def test_the_fit_is_relative() -> None:
    """One slow outlier among long steps must not move the short ones, as it would absolutely."""
    steps = steps_of(TRUTH)
    longest = max(range(len(steps)), key=lambda place: steps[place].seconds)
    steps[longest] = Measured(steps[longest].work, 1.3 * steps[longest].seconds)
    short = [step for step in steps_of(TRUTH, UNSEEN) if step.seconds < 0.05]
    assert len(short) > 10
    assert accuracy(fit_step_time(steps), short).worst < 0.05


def test_data_that_falls_with_work_gives_no_negative_coefficient() -> None:
    steps = [Measured(work, 1.0 / (1 + work.tokens)) for work in GRID]
    found = fit_step_time(steps)
    assert min(*found.token.slopes_s, *found.sampled.slopes_s) >= 0


def test_too_little_to_fit() -> None:
    with pytest.raises(UsageError, match="at least 8"):
        fit_step_time(steps_of(TRUTH)[:7])
    with pytest.raises(UsageError, match="no time"):
        fit_step_time([Measured(work, 0.0) for work in GRID])


matrices = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).normal(size=(12, 5)) * [1, 1e-6, 1e5, 1, 1]
)


@given(matrices, st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=100)
def test_non_negative_least_squares_meets_its_optimality_conditions(matrix, seed: int) -> None:
    """Karush–Kuhn–Tucker: x ≥ 0, no gradient pulls a 0 up, none pulls what is above 0."""
    target = np.random.default_rng(seed).normal(size=12)
    solution = non_negative_least_squares(matrix, target)
    assert (solution >= 0).all()
    scaled = matrix / np.linalg.norm(matrix, axis=0)
    pull = scaled.T @ (target - matrix @ solution)
    assert (pull[solution == 0] <= 1e-9).all()
    assert np.abs(pull[solution > 0]) == pytest.approx(0, abs=1e-9)


@given(matrices, st.lists(st.floats(0, 5), min_size=5, max_size=5))
@settings(deadline=None, max_examples=100)
def test_non_negative_least_squares_recovers_what_was_put_in(matrix, truth: list[float]) -> None:
    truth_scaled = np.array(truth) / np.linalg.norm(matrix, axis=0)
    solution = non_negative_least_squares(matrix, matrix @ truth_scaled)
    assert matrix @ solution == pytest.approx(matrix @ truth_scaled, abs=1e-9)


def test_columns_that_say_the_same_or_nothing_do_no_harm() -> None:
    column = np.arange(1.0, 7.0)
    matrix = np.stack([column, column, np.zeros(6)], axis=1)
    solution = non_negative_least_squares(matrix, 3 * column)
    assert solution[2] == 0
    assert matrix @ solution == pytest.approx(3 * column)
