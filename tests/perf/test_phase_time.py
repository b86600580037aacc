"""Whole phases equal the sum of their steps; the default profile is what was measured."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.perf import (
    DEFAULT_LINK_TIME,
    DEFAULT_STEP_TIME,
    FittedPhaseTime,
    FittedStepTime,
    LinkTime,
    Ramp,
    StepWork,
)

MODEL = FittedStepTime(
    fixed_s=3.0,
    token=Ramp(starts=(0, 8), slopes_s=(1.0, 0.5)),
    sampled=Ramp(starts=(0, 2), slopes_s=(4.0, 2.0)),
    chunk_s=0.7,
    context_s=0.01,
    attention_s=0.001,
)
ROWS = json.loads((Path(__file__).parents[2] / "benchmarks/results/engine.json").read_text())[
    "results"
]["rows"]


def step_by_step(tokens: int, start: int, size: int) -> float:
    seconds, at, end = 0.0, start, start + tokens
    while at < end:
        length = min(size, end - at)
        seconds += MODEL.seconds_of(StepWork().plus(at, length, sampled=False))
        at += length
    return seconds + MODEL.sampled.seconds(1) if tokens else 0.0


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 40))
@settings(deadline=None, max_examples=200)
def test_a_prefill_takes_as_long_as_its_steps(tokens: int, start: int, size: int) -> None:
    times = FittedPhaseTime(step_time=MODEL, step_tokens=size)
    assert times.prefill_s(tokens, start) == pytest.approx(step_by_step(tokens, start, size))


@given(st.lists(st.integers(0, 500), max_size=20))
@settings(deadline=None, max_examples=100)
def test_a_decode_step_takes_as_long_as_its_chunks(contexts: list[int]) -> None:
    work = StepWork()
    for context in contexts:
        work = work.plus(context, 1, sampled=True)
    seconds = FittedPhaseTime(step_time=MODEL).decode_step_s(len(contexts), sum(contexts))
    assert seconds == pytest.approx(MODEL.seconds_of(work))


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 600))
@settings(deadline=None, max_examples=100)
def test_more_never_takes_less(tokens: int, start: int, size: int) -> None:
    times = FittedPhaseTime(step_time=DEFAULT_STEP_TIME, step_tokens=size)
    base = times.prefill_s(tokens, start)
    assert base >= 0
    assert times.prefill_s(tokens + 1, start) > base
    assert times.prefill_s(tokens, start + 1) >= base
    assert times.decode_step_s(tokens + 1, start) > times.decode_step_s(tokens, start)


@pytest.mark.parametrize("step_tokens", [0, -1])
def test_a_step_has_tokens(step_tokens: int) -> None:
    with pytest.raises(ValueError, match="step_tokens must be at least 1"):
        FittedPhaseTime(step_time=MODEL, step_tokens=step_tokens)


def test_the_default_profile_is_the_measured_engine() -> None:
    times = FittedPhaseTime(step_time=DEFAULT_STEP_TIME)

    def measured_s(row: str, tokens: int) -> float:
        return tokens / ROWS[row]["measured"]["ours int8"]["median"]

    assert times.prefill_s(512) == pytest.approx(measured_s("prefill", 512), rel=0.05)
    assert times.prefill_s(512, 3584) == pytest.approx(measured_s("prefill-4k", 512), rel=0.05)
    for sequences in (1, 8, 32):
        predicted = times.decode_step_s(sequences, sequences * 540)
        assert predicted == pytest.approx(measured_s(f"decode-{sequences}", sequences), rel=0.1)


def test_a_link_takes_its_set_up_and_its_bytes() -> None:
    assert LinkTime(setup_s=0.5, bytes_per_s=100).seconds(50) == 1.0
    assert LinkTime(setup_s=0.5, bytes_per_s=100).seconds(0) == 0.5
    assert 0 < DEFAULT_LINK_TIME.seconds(2**20) < 0.01


@pytest.mark.parametrize(
    ("setup_s", "bytes_per_s", "field"),
    [(-1.0, 1.0, "setup_s"), (0.0, 0.0, "bytes_per_s"), (0.0, math.inf, "bytes_per_s")],
)
def test_a_link_with_impossible_numbers_is_refused(
    setup_s: float, bytes_per_s: float, field: str
) -> None:
    with pytest.raises(ValueError, match=field):
        LinkTime(setup_s=setup_s, bytes_per_s=bytes_per_s)
