"""What a fetch says of time: when its blocks are to be here, and what computing them would take."""

from dataclasses import replace
from math import inf

from fetch_bench import FetchBench, filled
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from scheduler_bench import request

from antiphon.types import Fetch, Slo

PROMPT = tuple(1 + number % 9 for number in range(26))
"""Six blocks of 4 and two tokens."""
OTHER = (9,) * 16
TTFT_S = 10.0


def fetch_of(stored: int, slo: Slo | None, token_s: float | None) -> Fetch:
    """Of a prompt of which so many tokens are in the store, after a step of 16 tokens of another
    one that took so long each."""
    bench = FetchBench(filled((*PROMPT[:stored], 9)))
    if token_s is not None:
        bench.add(request("before", OTHER), 0)
        plan = bench.scheduler.step(0.0)
        assert plan is not None
        result = replace(bench.engine.forward(plan), elapsed_s=token_s * len(OTHER))
        bench.scheduler.complete(plan, result, 0.0)
        bench.finish()
    bench.add(replace(request("r", PROMPT), slo=slo), stored)
    return bench.begin()


def test_it_is_to_leave_time_for_what_is_computed_behind_it() -> None:
    target = Slo(ttft_s=TTFT_S, tpot_s=1.0)
    assert fetch_of(8, target, 0.1).due == approx(TTFT_S - 0.1 * 18)
    assert fetch_of(16, target, 0.1).due == approx(TTFT_S - 0.1 * 10)
    assert fetch_of(8, target, None).due == TTFT_S, "nobody knows yet how fast prompts are computed"


def test_without_a_target_it_is_due_at_no_time() -> None:
    assert fetch_of(8, None, 0.1).due is None
    assert fetch_of(8, Slo(ttft_s=inf, tpot_s=1.0), 0.1).due is None


@given(st.sampled_from((4, 8, 12, 16, 20, 24)), st.floats(0.001, 0.2))
def test_fetching_by_then_and_computing_the_rest_ends_on_time(stored: int, token_s: float) -> None:
    fetch = fetch_of(stored, Slo(ttft_s=TTFT_S, tpot_s=1.0), token_s)
    rest = max(8, len(PROMPT) - 4 * len(fetch.keys))
    assert fetch.due is not None
    assert fetch.compute_s is not None
    assert abs(fetch.due + rest * token_s - TTFT_S) < 1e-9
    assert abs(fetch.compute_s - max(8, 4 * len(fetch.keys)) * token_s) < 1e-9
