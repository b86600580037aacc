"""A scheduler with an engine whose tokens the test says; and requests with short words."""

from antiphon.core.scheduler import Scheduler
from antiphon.sim import ScriptedEngine, ShadowKv
from antiphon.testing.strategies import WorkerSetup
from antiphon.types import (
    Admitted,
    FinishReason,
    KvConfig,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    SequenceEnded,
    StepPlan,
    TokenGenerated,
)

SETUP = WorkerSetup(
    config=SchedulerConfig(max_num_seqs=4, max_batched_tokens=16, reserve_fraction=0.0),
    kv=KvConfig(page_tokens=2, block_tokens=4),
    pages=40,
    max_model_len=32,
)


def request(id: str = "r", prompt: tuple[int, ...] = (1, 2, 3), **changes) -> Request:
    facts = {
        key: changes.pop(key)
        for key in ("eos_token_ids", "resumed", "priority", "deadline", "attempt", "done")
        if key in changes
    }
    return Request(
        id=RequestId(id),
        prompt=prompt,
        sampling=SamplingParams(**({"max_tokens": 4, "seed": 1} | changes)),
        **facts,
    )


class Bench:
    """A scheduler and an engine whose next tokens the test says."""

    def __init__(self, setup: WorkerSetup = SETUP) -> None:
        self.scheduler: Scheduler = setup.build()
        self.tokens: dict[tuple[str, int], int | str] = {}
        self.engine = ScriptedEngine(
            lambda one, sequence, _index: self.tokens.get((one.id, sequence), 9),
            shadow=ShadowKv(setup.kv.page_tokens),
        )

    def add(self, *requests: Request) -> None:
        for one in requests:
            assert isinstance(self.scheduler.add(one, 0.0), Admitted)

    def step(self) -> StepPlan:
        plan = self.scheduler.step(0.0)
        assert plan is not None
        return plan

    def turn(self) -> tuple[StepPlan, list]:
        plan = self.step()
        return plan, list(self.scheduler.complete(plan, self.engine.forward(plan), 0.0))

    def finish(self) -> list:
        events: list = []
        while (plan := self.scheduler.step(0.0)) is not None:
            events += self.scheduler.complete(plan, self.engine.forward(plan), 0.0)
        return events


def tokens(events: list, sequence: int = 0) -> list[tuple[int, int]]:
    return [
        (event.index, event.token)
        for event in events
        if isinstance(event, TokenGenerated) and event.sequence == sequence
    ]


def ends(events: list) -> list[tuple[int, FinishReason]]:
    return [(event.sequence, event.reason) for event in events if isinstance(event, SequenceEnded)]
