"""A short deadline gains a bounded head start, so nobody of its class starves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.urgency import PATIENCE_S
from antiphon.sim import ConstantStepTime, ScriptedEngine, Submit, hashed_script, run_worker
from antiphon.testing.strategies import VOCAB_SIZE, WorkerSetup
from antiphon.types import (
    KvConfig,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    Seconds,
    Started,
)

ONE_AT_A_TIME = WorkerSetup(
    config=SchedulerConfig(max_num_seqs=1, max_batched_tokens=8, max_queue=2000),
    kv=KvConfig(page_tokens=4, block_tokens=4),
    pages=64,
)


def request(id: str, deadline: Seconds | None, priority: int = 0) -> Request:
    return Request(
        id=RequestId(id),
        prompt=(1, 2, 3),
        sampling=SamplingParams(max_tokens=2, seed=0),
        deadline=deadline,
        priority=priority,
    )


def order_of_service(submits: list[Submit], step_s: Seconds) -> list[str]:
    engine = ScriptedEngine(hashed_script(VOCAB_SIZE), ConstantStepTime(step_s))
    log = run_worker(ONE_AT_A_TIME.build(), engine, submits, max_actions=100_000)
    return [what.request for _, what in log.happenings if isinstance(what, Started)]


arrivals = st.lists(
    st.tuples(
        st.integers(0, 40).map(lambda half: half / 2),
        st.sampled_from([None, 100.0, 200.0, 1000.0]),
        st.sampled_from([0, 0, 1]),
    ),
    min_size=2,
    max_size=12,
)


@settings(deadline=None, max_examples=150)
@given(arrivals)
def test_nobody_is_overtaken_by_who_came_more_than_the_patience_later(arrivals) -> None:
    submits = [
        Submit(at, request(f"r{number}", wait_s and at + wait_s, priority))
        for number, (at, wait_s, priority) in enumerate(sorted(arrivals, key=lambda one: one[0]))
    ]
    came = {item.request.id: (item.at, item.request.priority) for item in submits}
    served = order_of_service(submits, step_s=1.0)
    assert len(served) == len(submits)
    for place, earlier in enumerate(served):
        for later in served[place + 1 :]:
            (at, priority), (later_at, later_priority) = came[earlier], came[later]
            if priority >= later_priority:
                assert at <= later_at + PATIENCE_S


@pytest.mark.no_cover
def test_a_stream_of_short_timeouts_starves_nobody() -> None:
    """More comes than can be served, all of it with a shorter deadline than the victim's."""
    submits = [
        Submit(0.05 * number, request(f"hog{number}", 0.05 * number + 30)) for number in range(1000)
    ]
    submits.insert(21, Submit(1.0, request("victim", 601.0)))
    served = order_of_service(submits, step_s=0.05)
    after = [name for name in served[: served.index("victim")] if int(name[3:]) * 0.05 > 1.0]
    assert len(after) <= PATIENCE_S / 0.05


def test_a_short_deadline_still_gets_ahead_within_the_patience() -> None:
    submits = [
        Submit(0.0, request("first", None)),
        Submit(0.1, request("patient", None)),
        Submit(0.2, request("urgent", 3.0)),
    ]
    assert order_of_service(submits, step_s=0.3) == ["first", "urgent", "patient"]
