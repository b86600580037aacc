"""A worker's pace: learned from busy time, not from cold starts, nor from one odd report."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from router_kit import LinearTimes, view

from antiphon.core.router.pace import Pace


def reports(
    pace: Pace, speed: float, intervals: int, *, first: int = 0, busy_s: float = 0.0
) -> float:
    """Intervals of 100 steps of one decoding sequence, `speed` times as slow as predicted."""
    step_s = LinearTimes().decode_step_s(1, 1000) * speed
    for number in range(first, first + intervals):
        pace.reported(
            view(
                steps_total=100 * number,
                computed_tokens_total=100 * number,
                running=1,
                running_sequences=1,
                context_tokens=1000,
                busy_s_total=busy_s,
            ),
            0.0,
        )
        busy_s += 100 * step_s
    return busy_s


@settings(deadline=None, max_examples=50)
@given(st.floats(0.1, 10.0))
def test_it_finds_the_true_speed(speed: float) -> None:
    pace = Pace(LinearTimes())
    reports(pace, speed, 150)
    assert pace.factor == pytest.approx(speed, rel=0.05)


def test_a_cold_start_says_nothing() -> None:
    """dynamo 12430: samples of a starting engine poisoned the model for good."""
    pace = Pace(LinearTimes())
    for steps, busy_s in ((0, 0.0), (5, 60.0), (15, 90.0), (40, 90.3)):
        pace.reported(
            view(steps_total=steps, computed_tokens_total=steps, busy_s_total=busy_s), 0.0
        )
    assert pace.factor == 1.0


def test_one_odd_report_moves_it_little() -> None:
    pace = Pace(LinearTimes())
    busy_s = reports(pace, 1.0, 100)
    before = pace.factor
    reports(pace, 1.0, 1, first=100, busy_s=busy_s + 1e6)
    assert before < pace.factor < before * 1.15


def test_a_worker_that_reports_no_busy_time_keeps_the_model_s_pace() -> None:
    pace = Pace(LinearTimes())
    for steps in range(0, 1000, 100):
        pace.reported(view(steps_total=steps, computed_tokens_total=steps), 0.0)
    assert pace.factor == 1.0


def test_prompts_and_decodes_are_told_apart() -> None:
    pace, times = Pace(LinearTimes()), LinearTimes()
    busy_s = steps = tokens = 0.0
    for _ in range(40):  # 4 steps, each with 8 decodes beside 200 tokens of a prompt
        pace.reported(
            view(
                steps_total=int(steps),
                computed_tokens_total=int(tokens),
                running=8,
                running_sequences=8,
                context_tokens=800,
                busy_s_total=busy_s,
            ),
            0.0,
        )
        steps, tokens = steps + 4, tokens + 4 * 208
        busy_s += 3.0 * (4 * times.decode_step_s(8, 800) + times.prefill_s(800))
    assert pace.factor == pytest.approx(3.0, rel=0.05)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 100), st.integers(0, 10_000), st.integers(0, 64), st.floats(0, 1e9)
        ),
        max_size=20,
    )
)
def test_no_report_breaks_it(counts: list[tuple[int, int, int, float]]) -> None:
    pace = Pace(LinearTimes())
    for steps, tokens, sequences, busy_s in counts:
        pace.reported(
            view(
                steps_total=steps,
                computed_tokens_total=tokens,
                running_sequences=sequences,
                busy_s_total=busy_s,
            ),
            0.0,
        )
        assert 1 / 32 <= pace.factor <= 32


def test_a_worker_that_gets_no_work_is_tried_again() -> None:
    """Judged slow, it would report no step that could clear it: what was learned fades."""
    pace = Pace(LinearTimes())
    reports(pace, 8.0, 40)
    slow = pace.factor
    for second in range(121):
        pace.fade(float(second), idle=True)
    assert pace.factor == pytest.approx(slow**0.5)
    pace.fade(1000.0, idle=True)
    assert pace.factor == pytest.approx(1.0, abs=0.01)


def test_a_worker_that_works_keeps_what_was_learned() -> None:
    pace = Pace(LinearTimes())
    reports(pace, 8.0, 40)
    slow = pace.factor
    for second in range(1000):
        pace.fade(float(second), idle=False)
    assert pace.factor == slow
    pace.fade(1000.0, idle=True)
    assert pace.factor == pytest.approx(slow, rel=0.02)  # one second of it, not all


def test_time_that_stands_still_or_runs_back_fades_nothing() -> None:
    pace = Pace(LinearTimes())
    reports(pace, 4.0, 40)
    before = pace.factor
    for now in (5.0, 5.0, 4.0):
        pace.fade(now, idle=True)
    assert pace.factor <= before
    assert pace.factor > 0.8 * before
