"""The worker in virtual time: what happens when, to the number."""

from antiphon.sim import Cancel, ConstantStepTime, ScriptedEngine, Submit, hashed_script, run_worker
from antiphon.testing.strategies import WorkerSetup
from antiphon.types import (
    Aborted,
    FinishReason,
    KvConfig,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    SequenceEnded,
    SequenceFault,
    Started,
    TokenGenerated,
)

SETUP = WorkerSetup(
    config=SchedulerConfig(max_num_seqs=1, max_batched_tokens=4),
    kv=KvConfig(page_tokens=2, block_tokens=4),
    pages=20,
)


def request(id: str, *, max_tokens: int = 2, deadline: float | None = None) -> Request:
    return Request(
        id=RequestId(id),
        prompt=(1,) * 6,
        sampling=SamplingParams(max_tokens=max_tokens, seed=0),
        deadline=deadline,
    )


def test_steps_take_their_time_and_the_next_request_waits_for_them() -> None:
    engine = ScriptedEngine(hashed_script(16), ConstantStepTime(0.5))
    log = run_worker(SETUP.build(), engine, [Submit(1.0, request("a")), Submit(1.2, request("b"))])
    assert [at for at, _ in log.plans] == [1.0, 1.5, 2.0, 2.5, 3.0]
    at = {
        (what.request, what.index): at
        for at, what in log.happenings
        if isinstance(what, TokenGenerated)
    }
    assert at == {("a", 0): 2.0, ("a", 1): 2.5, ("b", 0): 3.0, ("b", 1): 3.5}
    queued = [what.queued_s for _, what in log.happenings if isinstance(what, Started)]
    assert queued == [0.0, 1.3]


def test_a_deadline_comes_on_time_though_nothing_else_happens_then() -> None:
    engine = ScriptedEngine(hashed_script(16), ConstantStepTime(10.0))
    log = run_worker(SETUP.build(), engine, [Submit(0.0, request("a", deadline=3.0))])
    ends = [(at, what.reason) for at, what in log.happenings if isinstance(what, SequenceEnded)]
    assert ends == [(3.0, FinishReason.DEADLINE)]


def test_what_ends_without_a_step_is_told_at_once() -> None:
    engine = ScriptedEngine(hashed_script(16))
    log = run_worker(SETUP.build(), engine, [Submit(2.0, request("a", max_tokens=0))])
    assert [(at, type(what)) for at, what in log.happenings][1:] == [(2.0, SequenceEnded)]
    assert not log.plans


def test_a_cancel_stops_the_work_with_the_running_step() -> None:
    engine = ScriptedEngine(hashed_script(16), ConstantStepTime(1.0))
    stimuli = [Submit(0.0, request("a", max_tokens=50)), Cancel(3.5, RequestId("a"))]
    log = run_worker(SETUP.build(), engine, stimuli)
    assert log.happenings[-1] == (3.5, Aborted(request=RequestId("a"), sequences=(0,)))
    assert log.plans[-1][0] == 3.0 and log.views[-1][1].held_pages == 0


def test_a_script_may_fail() -> None:
    worker = SETUP.build()
    worker.add(request("a"), 0.0)
    engine = ScriptedEngine(lambda *_: "broken")
    first = worker.step(0.0)
    assert first is not None and not engine.forward(first).faults
    worker.complete(first, engine.forward(first), 0.0)
    second = worker.step(0.0)
    assert second is not None
    assert engine.forward(second).faults == (SequenceFault(RequestId("a"), 0, "broken"),)
