"""Closed forms beside simulated queues, and beside each other."""

from itertools import accumulate
from math import inf
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queues import exponential, waits

from antiphon.perf.queueing import (
    erlang_c,
    md1_ttft_s,
    mg1_wait_s,
    mgc_wait_s,
    pipelined_ttft_s,
    staged_ttft_s,
    tensor_parallel_ttft_s,
    utilisation,
)

CALLS = 120_000
PREFILL_S = 0.08
rates = st.floats(0.01, 12.4)
"""Below the saturation of `PREFILL_S`, which is at 12.5 a second."""


def simulated_ttft_s(rate: float, occupied_s: float, latency_s: float) -> float:
    """Each prompt occupies the (first stage of the) worker, and is done `latency_s` after."""
    gaps = exponential(1 / rate, CALLS, seed=1)
    return fmean(waits(gaps, [occupied_s] * CALLS)) + latency_s


@pytest.mark.parametrize("busy", [0.2, 0.5, 0.8])
def test_one_worker_is_md1(busy: float) -> None:
    rate = busy / PREFILL_S
    simulated = simulated_ttft_s(rate, PREFILL_S, PREFILL_S)
    assert md1_ttft_s(rate, PREFILL_S) == pytest.approx(simulated, rel=0.02)


@pytest.mark.parametrize("busy", [0.2, 0.5, 0.8])
def test_two_stages_are_busy_half_as_long(busy: float) -> None:
    rate = busy / (PREFILL_S / 2)
    simulated = simulated_ttft_s(rate, PREFILL_S / 2, PREFILL_S)
    assert pipelined_ttft_s(rate, PREFILL_S) == pytest.approx(simulated, rel=0.02)


@pytest.mark.parametrize("stages", [(0.02, 0.03, 0.03), (0.05, 0.01, 0.02), (0.02, 0.02, 0.04)])
def test_behind_the_slowest_stage_nobody_waits_twice(stages: tuple[float, ...]) -> None:
    """Against a queue at each stage: whoever comes through the slowest is spread for the rest."""
    rate = 0.7 / max(stages)
    now = list(accumulate(exponential(1 / rate, CALLS, seed=1)))
    ends = now
    for stage in stages:
        free_at, ended = 0.0, []
        for at in ends:
            free_at = max(at, free_at) + stage
            ended.append(free_at)
        ends = ended
    simulated = fmean(end - at for end, at in zip(ends, now, strict=True))
    assert staged_ttft_s(rate, max(stages), sum(stages)) == pytest.approx(simulated, rel=0.02)


@pytest.mark.parametrize("busy", [0.2, 0.5, 0.8])
def test_two_devices_as_one_are_faster(busy: float) -> None:
    rate = busy / (PREFILL_S / 1.6)
    simulated = simulated_ttft_s(rate, PREFILL_S / 1.6, PREFILL_S / 1.6)
    assert tensor_parallel_ttft_s(rate, PREFILL_S, 1.6) == pytest.approx(simulated, rel=0.02)


def test_prompts_of_several_lengths_wait_by_their_squares() -> None:
    """Nine short prompts, then a long one, in random order by the draws of their lengths."""
    rate = 5.0
    lengths = [0.4 if one < 0.1 else 0.05 for one in _fractions()]
    mean, square = fmean(lengths), fmean(one**2 for one in lengths)
    simulated = fmean(waits(exponential(1 / rate, CALLS, seed=1), lengths))
    assert mg1_wait_s(rate, mean, square) == pytest.approx(simulated, rel=0.04)
    alike = md1_ttft_s(rate, mean) - mean
    assert mg1_wait_s(rate, mean, square) > 2 * alike


def _fractions() -> list[float]:
    return [min(1.0, one) for one in exponential(1.0, CALLS, seed=2)]


@pytest.mark.parametrize("servers", [2, 4, 16])
@pytest.mark.parametrize("busy", [0.7, 0.9])
def test_several_workers_of_exponential_times_wait_as_erlang_says(
    servers: int, busy: float
) -> None:
    rate = busy * servers / PREFILL_S
    services = exponential(PREFILL_S, CALLS, seed=3)
    found = waits(exponential(1 / rate, CALLS, seed=1), services, servers)
    waited = sum(one > 1e-12 for one in found) / CALLS
    assert erlang_c(rate, PREFILL_S, servers) == pytest.approx(waited, rel=0.03)
    predicted = mgc_wait_s(rate, PREFILL_S, 2 * PREFILL_S**2, servers)
    assert predicted == pytest.approx(fmean(found), rel=0.1)  # few wait, and in clusters


@pytest.mark.parametrize(("servers", "off"), [(2, 0.06), (4, 0.1), (16, 0.2)])
def test_for_constant_times_half_of_that_is_a_little_low(servers: int, off: float) -> None:
    """The error of (1 + cv²)/2 grows with the workers and shrinks with the load."""
    rate = 0.8 * servers / PREFILL_S
    found = fmean(waits(exponential(1 / rate, CALLS, seed=1), [PREFILL_S] * CALLS, servers))
    predicted = mgc_wait_s(rate, PREFILL_S, PREFILL_S**2, servers)
    assert predicted < found * 1.01
    assert predicted == pytest.approx(found, rel=off)


@given(rates)
@settings(deadline=None, max_examples=200)
def test_forms_agree_where_they_meet(rate: float) -> None:
    wait_s = mg1_wait_s(rate, PREFILL_S, PREFILL_S**2)
    assert md1_ttft_s(rate, PREFILL_S) == pytest.approx(PREFILL_S + wait_s)
    assert mgc_wait_s(rate, PREFILL_S, PREFILL_S**2, 1) == pytest.approx(wait_s)
    assert erlang_c(rate, PREFILL_S, 1) == pytest.approx(utilisation(rate, PREFILL_S))
    both_s = PREFILL_S + rate * PREFILL_S**2 / (4 * (2 - rate * PREFILL_S))
    assert pipelined_ttft_s(rate, PREFILL_S) == pytest.approx(both_s)
    speedup = 1.7
    fast_s = PREFILL_S / speedup
    fast_s += rate * PREFILL_S**2 / (2 * speedup * (speedup - rate * PREFILL_S))
    assert tensor_parallel_ttft_s(rate, PREFILL_S, speedup) == pytest.approx(fast_s)


@given(rates, rates, st.integers(1, 40))
@settings(deadline=None, max_examples=200)
def test_more_calls_wait_longer_and_more_workers_less(
    one: float, other: float, servers: int
) -> None:
    less, more = sorted((one, other))
    assert md1_ttft_s(less, PREFILL_S) <= md1_ttft_s(more, PREFILL_S)
    square = 2 * PREFILL_S**2
    few = mgc_wait_s(less, PREFILL_S, square, servers)
    assert few <= mgc_wait_s(more, PREFILL_S, square, servers)
    assert mgc_wait_s(less, PREFILL_S, square, servers + 1) <= few
    assert 0 <= erlang_c(less, PREFILL_S, servers) <= 1


def test_tensor_parallelism_wins_at_low_rates_and_pipelines_at_high_ones() -> None:
    """DistServe §3.1, figure 4: where the lines cross depends on the speed-up."""
    low, high = 2.0, 20.0
    for speedup in (1.5, 1.9):
        fast_s = tensor_parallel_ttft_s(low, PREFILL_S, speedup)
        assert fast_s < pipelined_ttft_s(low, PREFILL_S)
    assert tensor_parallel_ttft_s(high, PREFILL_S, 1.5) == inf
    assert pipelined_ttft_s(high, PREFILL_S) < inf


def test_at_saturation_nobody_is_served() -> None:
    rate = 1 / PREFILL_S
    assert md1_ttft_s(rate, PREFILL_S) == mg1_wait_s(rate, PREFILL_S, 1.0) == inf
    assert pipelined_ttft_s(2 * rate, PREFILL_S) == inf
    assert tensor_parallel_ttft_s(1.5 * rate, PREFILL_S, 1.5) == inf
    assert mgc_wait_s(3 * rate, PREFILL_S, 1.0, 3) == inf
    assert erlang_c(3 * rate, PREFILL_S, 3) == 1.0
