"""Whoever needs more memory than there will be is passed by those who need less: not for ever."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.scheduler import starting
from antiphon.core.scheduler.starting import MOST_PASSED
from antiphon.sim import ConstantStepTime, ScriptedEngine, ShadowKv, Submit, run_worker
from antiphon.testing.strategies import WorkerSetup
from antiphon.types import (
    KvConfig,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    Seconds,
    Started,
)

TOKENS = 64
"""Of memory, each a page."""


def submit(number: int, at: Seconds, prompt: int, output: int, priority: int = 0) -> Submit:
    one = Request(
        id=RequestId(f"r{number:03}"),
        prompt=(1 + number % 7,) * prompt,
        sampling=SamplingParams(max_tokens=output, seed=0),
        priority=priority,
    )
    return Submit(at, one)


def started(coming: list[Submit]) -> dict[str, float]:
    """When each began, in that order. All end, at their limits."""
    worker = WorkerSetup(
        config=SchedulerConfig(
            max_num_seqs=64, max_batched_tokens=128, reserve_fraction=0.0, admission="conservative"
        ),
        kv=KvConfig(page_tokens=1, block_tokens=4, prefix_cache=False),
        pages=TOKENS,
        max_model_len=TOKENS,
    ).build()
    engine = ScriptedEngine(lambda *_: 5, ConstantStepTime(1.0), ShadowKv(1))
    log = run_worker(worker, engine, coming)
    at = {what.request: at for at, what in log.happenings if isinstance(what, Started)}
    assert len(at) == len(coming)
    return at


def passed(coming: list[Submit]) -> dict[str, int]:
    """How many that came later began before each."""
    order = list(started(coming))
    return {id: sum(other > id for other in order[:place]) for place, id in enumerate(order)}


def test_a_large_one_does_not_hold_up_small_ones_that_fit() -> None:
    """An hour's answer ran, the next in the queue did not fit beside it, and nobody began."""
    coming = [submit(0, 0.0, 4, 50), submit(1, 1.0, 40, 20), submit(2, 1.0, 4, 4)]
    at = started(coming)
    assert at[RequestId("r002")] == 1.0
    assert at[RequestId("r001")] >= 50.0, "there was no room for it"


def flood(count: int) -> list[Submit]:
    """A large one behind small ones that come again and again, each before the last has ended."""
    small = [submit(number, 1.0 * number, 2, 11) for number in range(3, count)]
    return [submit(0, 0.0, 16, 24), submit(1, 1.0, 58, 6), *small]


def test_a_large_one_is_passed_so_often_only() -> None:
    assert passed(flood(60))[RequestId("r001")] == MOST_PASSED


def test_without_that_limit_it_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    monkeypatch.setattr(starting, "MOST_PASSED", 1000)
    assert passed(flood(60))[RequestId("r001")] > 2 * MOST_PASSED


def test_a_class_that_comes_later_does_not_pass() -> None:
    coming = [submit(0, 0.0, 4, 50), submit(1, 1.0, 40, 20), submit(2, 1.0, 4, 4, priority=1)]
    at = started(coming)
    assert at[RequestId("r002")] >= at[RequestId("r001")]


SIZES = st.tuples(st.integers(0, 4), st.integers(1, 40), st.integers(1, 20))


@given(st.lists(SIZES, min_size=2, max_size=40))
@settings(deadline=None, max_examples=150)
def test_nobody_is_passed_more_often(sizes: list[tuple[int, int, int]]) -> None:
    coming, at = list[Submit](), 0.0
    for number, (gap, prompt, output) in enumerate(sizes):
        at += gap
        coming.append(submit(number, at, prompt, output))
    assert max(passed(coming).values()) <= MOST_PASSED
