"""What a worker did, read from its decision log, and what it held after each decision.

The log is replayed, so every count is that of the scheduler itself. Nothing here knows of clocks:
whether something was done soon is said in steps and tokens.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from antiphon.core.handover import LEASES
from antiphon.core.recorded_run import fresh_machines
from antiphon.core.recorder import Entry, replay
from antiphon.core.scheduler import SCHEDULER, Scheduler
from antiphon.types import Request, RequestId, StepPlan, WorkerView
from antiphon.wire import read_decision_log


@dataclass(frozen=True, slots=True)
class Moment:
    """One decision, and the worker right after it."""

    method: str
    facts: dict[str, Any]
    decision: Any
    view: WorkerView

    @property
    def plan(self) -> StepPlan | None:
        """What was to be computed from here on."""
        return self.decision if self.method == "step" else None

    def tokens(self, id: RequestId) -> int:
        """How many of a request's tokens this plan computes."""
        chunks = self.plan.chunks if self.plan else ()
        return sum(len(chunk.tokens) for chunk in chunks if chunk.request.id == id)


class Tape:
    """A worker's moments, in order. Reading it asserts that its decisions can be replayed."""

    def __init__(self, log: Path) -> None:
        self.moments: list[Moment] = []
        with log.open("rb") as lines:
            run = read_decision_log(lines, str(log))
            machines = fresh_machines(run.setup)
            scheduler = machines[SCHEDULER]
            assert isinstance(scheduler, Scheduler)
            used = {SCHEDULER: scheduler, LEASES: machines[LEASES]}
            assert list(replay(self._watched(run.entries, scheduler), used)) == []

    def _watched(self, entries: Iterable[Entry], scheduler: Scheduler) -> Iterator[Entry]:
        for entry in entries:
            yield entry
            view = scheduler.view(0.0)
            self.moments.append(Moment(entry.method, dict(entry.facts), entry.decision, view))

    def request(self, first_token: int) -> Request:
        """The only request whose prompt begins like that."""
        (found,) = {
            moment.facts["request"].id: moment.facts["request"]
            for moment in self.moments
            if moment.method in ("add", "adopt")
            and moment.facts["request"].prompt[0] == first_token
        }.values()
        return found

    def index(self, method: str, id: RequestId) -> int:
        """Where this was first called for a request."""
        for index, moment in enumerate(self.moments):
            about = moment.facts.get("request", moment.facts.get("id"))
            if moment.method == method and id in (about, getattr(about, "id", None)):
                return index
        raise AssertionError(f"{method} was never called for {id}")

    def first_chunk(self, id: RequestId) -> int:
        """Where a plan first has tokens of a request."""
        return next(i for i, moment in enumerate(self.moments) if moment.tokens(id))

    def computed(self, id: RequestId, start: int = 0, end: int | None = None) -> int:
        """How many tokens of a request the plans between two places have."""
        return sum(moment.tokens(id) for moment in self.moments[start:end])

    def steps_until_free(self, start: int) -> int:
        """How many steps end from there on until the worker holds nothing for anybody."""
        steps = 0
        for moment in self.moments[start:]:
            steps += moment.method == "complete"
            view = moment.view
            if not (view.running or view.waiting or view.held_pages or view.leases or view.pulling):
                return steps
        raise AssertionError(f"it still holds something: {self.moments[-1].view}")
