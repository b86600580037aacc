"""A fleet of one prefill worker is the queue of the closed forms: DistServe's OPT-13B on A100.

Each call's time to first token is what the queue's recursion says, and their mean what M/D/1 says.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import log
from statistics import fmean
from typing import TypeAlias

import pytest

from antiphon.core.config import build
from antiphon.core.draws import Draws
from antiphon.perf import DEFAULT_STEP_TIME, LinkTime, ProfiledDevice
from antiphon.perf.hardware import Deployment, Parallelism, device_of, shape_of
from antiphon.perf.published_times import PublishedStepTime, published_times
from antiphon.perf.queueing import (
    md1_ttft_s,
    pipelined_ttft_s,
    staged_ttft_s,
    tensor_parallel_ttft_s,
)
from antiphon.sim.fleet import Fleet, FleetSpec, Pool, TokenSession, TokenTurn, UserRules
from antiphon.sim.fleet.token_sessions import answer_tokens
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import CallRecord, Role

PROMPT = 512
CALLS = 1000
BUSY = 0.6
SAID_S = 0.005
"""Messages to and from the worker take at most so long."""

Times: TypeAlias = Deployment | PublishedStepTime | ProfiledDevice


def arrivals(rate: float, calls: int) -> list[float]:
    draws = Draws(7)
    return list(accumulate(-log(1 - draws.fraction(number)) / rate for number in range(calls)))


def ttfts(times: Times, at: Sequence[float], *, tokens: int = 1) -> list[CallRecord]:
    """What callers see of one mixed worker that computes a prompt a step."""
    config = build(
        {
            "scheduler": {"max_batched_tokens": PROMPT, "max_queue": CALLS, "max_num_seqs": 64},
            "router": {"policy": "round-robin", "ttft_s": 1000.0},
        }
    )
    pool = Pool(
        name="one", role=Role.MIXED, workers=1, step_time=times, phases=times, kv_tokens=2**20
    )
    link = LinkTime(setup_s=0.0, bytes_per_s=1e12)
    spec = FleetSpec(
        pools=(pool,),
        config=config,
        expected=Expected(times, link),
        transfer=link,
        kv_bytes_per_token=1,
        max_model_len=4096,
    )
    sessions = (
        TokenSession(due, number, (TokenTurn((answer_tokens(number, 1, PROMPT),), tokens),))
        for number, due in enumerate(at)
    )
    records: list[CallRecord] = []
    Fleet(spec, sessions, UserRules(), records.append).run()
    return sorted(records, key=lambda one: one.due_at_s)


def check_queue(times: Times, rate: float, closed_s: float) -> None:
    """Call by call as the recursion says, on average as the closed form does."""
    occupied_s, prefill_s = times.occupied_s(PROMPT), times.prefill_s(PROMPT)
    at = arrivals(rate, CALLS)
    seen = ttfts(times, at)
    assert all(one.error is None for one in seen)
    free_at, expected = 0.0, []
    for due in at:
        begins = max(due, free_at)
        free_at = begins + occupied_s
        expected.append(begins + prefill_s - due)
    found = [one.token_at_s[0] - one.due_at_s for one in seen]
    assert max(abs(a - b) for a, b in zip(found, expected, strict=True)) < SAID_S
    assert fmean(found) == pytest.approx(closed_s, rel=0.08)


def test_one_worker_is_md1() -> None:
    times = published_times("opt-13b", 1)
    prefill_s = times.prefill_s(PROMPT)
    rate = BUSY / prefill_s
    check_queue(times, rate, md1_ttft_s(rate, prefill_s))


def test_two_stages_are_the_pipelined_form() -> None:
    times = published_times("opt-13b", 1, 2)
    latency_s = times.prefill_s(PROMPT)
    rate = BUSY / (latency_s / 2)
    check_queue(times, rate, pipelined_ttft_s(rate, latency_s))


def test_two_devices_as_one_are_the_tensor_parallel_form() -> None:
    """The speed-up is measured: 1.43 for OPT-13B and 512 tokens."""
    alone_s = published_times("opt-13b", 1).prefill_s(PROMPT)
    times = published_times("opt-13b", 2)
    fast_s = times.prefill_s(PROMPT)
    assert alone_s / fast_s == pytest.approx(1.43, abs=0.01)
    rate = BUSY / fast_s
    check_queue(times, rate, tensor_parallel_ttft_s(rate, alone_s, alone_s / fast_s))


def deployed(pipeline: int) -> Deployment:
    return Deployment(
        model=shape_of("opt-13b"),
        device=device_of("a100"),
        parallelism=Parallelism(pipeline=pipeline),
    )


@pytest.mark.parametrize("pipeline", [2, 3])
def test_stages_of_a_roofline_queue_alike(pipeline: int) -> None:
    """Three stages of 40 layers are uneven, and the last of any has the head too."""
    times = deployed(pipeline)
    occupied_s, latency_s = times.occupied_s(PROMPT), times.prefill_s(PROMPT)
    assert latency_s / pipeline < occupied_s < 1.1 * latency_s / pipeline
    rate = BUSY / occupied_s
    check_queue(times, rate, staged_ttft_s(rate, occupied_s, latency_s))


@pytest.mark.parametrize("pipeline", [1, 2, 4])
def test_a_lone_answer_goes_through_all_stages_for_each_token(pipeline: int) -> None:
    times = deployed(pipeline)
    (record,) = ttfts(times, [0.0], tokens=33)
    stamps = record.token_at_s
    each_s = (stamps[-1] - stamps[1]) / (len(stamps) - 2)
    assert each_s == pytest.approx(times.decode_step_s(1, PROMPT + 16), rel=0.02)
    assert each_s > 0.99 * deployed(1).decode_step_s(1, PROMPT + 16)


def test_a_profiled_device_is_a_pools_device() -> None:
    """One object for its steps and for what a planner expects of them."""
    times = ProfiledDevice(step_time=DEFAULT_STEP_TIME, step_tokens=PROMPT)
    (record,) = ttfts(times, [0.0], tokens=9)
    first, last = record.token_at_s[0], record.token_at_s[-1]
    assert first == pytest.approx(times.prefill_s(PROMPT), abs=SAID_S)
    assert last - first == pytest.approx(8 * times.decode_step_s(1, PROMPT + 4), rel=0.01)
