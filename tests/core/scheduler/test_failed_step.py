"""A pass that breaks off: everyone in it ends once, memory returns, and no KV of it is used."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.scheduler import Scheduler
from antiphon.errors import BugError
from antiphon.sim import ScriptedEngine, ShadowKv, hashed_script
from antiphon.types import (
    Aborted,
    Admitted,
    FinishReason,
    KvConfig,
    ModelInfo,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    SequenceEnded,
)

MODEL = ModelInfo(
    name="m",
    identity=b"m",
    numerics="n",
    vocab_size=50,
    context_len=128,
    eos_token_ids=(),
    kv_bytes_per_token=1,
)
PAGES = 40


def fresh() -> Scheduler:
    return Scheduler(
        config=SchedulerConfig(max_num_seqs=6, max_batched_tokens=12),
        kv=KvConfig(page_tokens=2, block_tokens=4),
        pages=PAGES,
        model=MODEL,
        max_model_len=64,
    )


def request(id: str, prompt_len: int = 20, n: int = 1) -> Request:
    sampling = SamplingParams(n=n, max_tokens=5, seed=0)
    return Request(id=RequestId(id), prompt=tuple(range(prompt_len)), sampling=sampling)


def assert_at_rest(scheduler: Scheduler) -> None:
    view = scheduler.view(0.0)
    assert (view.running, view.waiting, view.held_pages) == (0, 0, 0)
    assert view.free_pages + view.cached_pages == PAGES


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32), st.floats(0.05, 0.9))
def test_everyone_ends_once_whatever_fails(seed: int, failing: float) -> None:
    chance, scheduler = random.Random(seed), fresh()
    engine = ScriptedEngine(hashed_script(50), shadow=ShadowKv(2))
    ends: list[tuple[str, int]] = []
    expected: list[tuple[str, int]] = []
    for turn in range(300):
        now = float(turn)
        if turn < 40 and chance.random() < 0.6:
            one = request(f"r{turn}", chance.choice([3, 8, 20, 30]), chance.choice([1, 1, 3]))
            assert isinstance(scheduler.add(one, now), Admitted)
            expected += [(one.id, sequence) for sequence in range(one.sampling.n)]
        plan = scheduler.step(now)
        if plan is None:
            continue
        if chance.random() < 0.3:
            victim, sequence = chance.choice(expected)
            answer = scheduler.abort(RequestId(victim), now, chance.choice([None, sequence]))
            if isinstance(answer, Aborted):
                ends += [(victim, one) for one in answer.sequences]
        if turn < 200 and chance.random() < failing:
            events = scheduler.fail(plan, "broken", now)
            working = {chunk.request.id for chunk in plan.chunks}
            reasons = {e.reason for e in events if isinstance(e, SequenceEnded)}
            assert reasons <= {FinishReason.ERROR}
            assert {e.request for e in events if isinstance(e, SequenceEnded)} <= working
        else:
            events = scheduler.complete(plan, engine.forward(plan), now)
        ends += [(e.request, e.sequence) for e in events if isinstance(e, SequenceEnded)]
    assert sorted(ends) == sorted(expected)
    assert_at_rest(scheduler)


def test_a_prompt_in_the_middle_ends_with_its_followers_and_names_no_block() -> None:
    scheduler = fresh()
    scheduler.add(request("a", n=3), 0.0)
    scheduler.add(request("b", n=1), 0.0)
    plan = scheduler.step(0.0)
    assert plan is not None and plan.chunks[0].samples == ()
    events = scheduler.fail(plan, "broken", 1.0)
    ends = [event for event in events if isinstance(event, SequenceEnded)]
    assert [(end.request, end.sequence) for end in ends] == [("a", 0), ("a", 1), ("a", 2)]
    assert {(end.reason, end.message) for end in ends} == {(FinishReason.ERROR, "broken")}
    view = scheduler.view(1.0)
    assert (view.waiting, view.cached_pages, view.free_pages) == (1, 0, PAGES)
    scheduler.add(request("a"), 2.0)
    assert scheduler.step(2.0) is not None, "the id is free and the worker goes on"


def test_only_the_outstanding_plan_can_fail() -> None:
    scheduler = fresh()
    scheduler.add(request("a"), 0.0)
    plan = scheduler.step(0.0)
    assert plan is not None
    scheduler.fail(plan, "broken", 1.0)
    with pytest.raises(BugError, match="step 0 fails but is not outstanding"):
        scheduler.fail(plan, "broken", 1.0)


def test_the_engine_is_told_again_whom_it_may_forget() -> None:
    scheduler, engine = fresh(), ScriptedEngine(hashed_script(50))
    scheduler.add(request("a", 3), 0.0)
    plan = scheduler.step(0.0)
    assert plan is not None
    scheduler.complete(plan, engine.forward(plan), 1.0)
    scheduler.abort(RequestId("a"), 1.0)
    scheduler.add(request("b", 3), 1.0)
    plan = scheduler.step(1.0)
    assert plan is not None and plan.ended == (("a", 0),)
    scheduler.fail(plan, "broken", 2.0)
    scheduler.add(request("c", 3), 2.0)
    plan = scheduler.step(2.0)
    assert plan is not None and plan.ended == (("a", 0), ("b", 0))
