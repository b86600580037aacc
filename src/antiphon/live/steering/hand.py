"""The hand of a live planner: its moves, done by the supervisor and by what operators have.

Add  ──► AddWorker to the supervisor ──► it joins, or NotAdded
Take ──► Operations.end: drained, then its process ends
Flip ──► Operations.set_role: drained, then there in the other role
"""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from antiphon.core.planner import Add, Decision, Flip, Take, to_leave
from antiphon.core.restart_backoff import RestartBackoff
from antiphon.errors import ClientError, PeerError
from antiphon.live.admin.operations import Operations
from antiphon.live.gateway.planner_metrics import PlannerCounts
from antiphon.live.supervisor.messages import AddWorker, FromChild
from antiphon.types import Role, Seconds, WorkerId

from .crew import Crew, CrewNow

_RETRY_S = 30.0
"""So long after a worker could not be added nobody is asked for; twice as long after the next."""

Deed: TypeAlias = Coroutine[Any, Any, None]
Spawn: TypeAlias = Callable[[Deed], object]
_log = logging.getLogger(__name__)


class Hand:
    """Carries out decisions. Nothing here waits: what takes long is given to `spawn`.

    There are never more workers than `budget`, whoever has started them: also those that an
    operator drained, or gave a role that the planner does not count.
    """

    def __init__(
        self,
        operations: Operations,
        crew: Crew,
        tell: Callable[[FromChild], None],
        counts: PlannerCounts,
        *,
        budget: int,
        drain_s: Seconds,
    ) -> None:
        self._operations = operations
        self._crew = crew
        self._tell = tell
        self._counts = counts
        self._budget = budget
        self._drain_s = drain_s
        self._adding: dict[WorkerId, Seconds] = {}
        """Since when a worker was asked for that does not serve yet."""
        self._backoff = RestartBackoff(_RETRY_S)
        self._not_before: Seconds | None = None
        self._why = ""
        self._at_budget = False
        """The newest decision adds a worker for which there is no budget."""
        self.ready_s: Seconds | None = None
        """How long the last worker that was added took until it served."""

    def withheld(self, now: Seconds) -> str:
        """Why no worker is added at present; "": one that is wanted would be.

        That the budget is taken is said if the newest decision wanted more.
        """
        if self._not_before is None or now >= self._not_before:
            return f"the budget of {self._budget} is taken" if self._at_budget else ""
        return f"{self._why}; tried again in {self._not_before - now:.0f} s"

    def saw(self, crew: CrewNow, now: Seconds) -> None:
        """Who there is at present. Mutates: a worker that serves was worth asking for."""
        for id, asked_at in list(self._adding.items()):
            if id in crew.views:
                self.ready_s = now - asked_at
                self._backoff, self._not_before = RestartBackoff(_RETRY_S), None
            if id in crew.views or id not in crew.workers:
                del self._adding[id]

    def not_added(self, worker: WorkerId, why: str, now: Seconds) -> None:
        """The supervisor could not start it, and has said so in the log. Mutates."""
        self._crew.refused(worker)
        self._adding.pop(worker, None)
        self._counts.failed_adds += 1
        self._why = f"{worker} could not be added: {why}"
        if self._not_before is None or now >= self._not_before:
            self._not_before = now + self._backoff.died(None, now)

    def carry_out(self, decision: Decision, now: Seconds, spawn: Spawn) -> None:
        """Begin all moves of a decision."""
        self._at_budget = False
        for move in decision.moves:
            match move:
                case Add(role, workers):
                    for _ in range(workers):
                        self._add(role, now)
                case Take(role, workers):
                    for id in self._free(role, workers, now):
                        self._begin(id, "take", role, None)
                        spawn(self._end(id))
                case Flip(role, to, workers):
                    for id in self._free(role, workers, now):
                        self._begin(id, "flip", role, to)
                        spawn(self._flip(id, to))

    def _free(self, role: Role, workers: int, now: Seconds) -> list[WorkerId]:
        crew = self._crew.look(now)
        return to_leave(crew.workers, crew.views, role, workers)

    def _begin(self, id: WorkerId, deed: str, role: Role, becomes: Role | None) -> None:
        self._crew.leaves(id, becomes)
        self._counts.moves[deed, role] += 1

    def _add(self, role: Role, now: Seconds) -> None:
        there = self._crew.look(now).workers
        self._at_budget = len(there) >= self._budget
        if self.withheld(now):
            return
        names = (WorkerId(f"{role}-{number}") for number in range(len(there) + 1))
        id = next(name for name in names if name not in there)
        self._crew.asks(id, role)
        self._adding[id] = now
        self._counts.moves["add", role] += 1
        self._tell(AddWorker(id, role))

    async def _end(self, id: WorkerId) -> None:
        try:
            await self._operations.end(id, self._drain_s)
        except (ClientError, PeerError) as error:
            _log.info("%s was not ended: %s", id, error)
        finally:
            self._crew.stays(id)

    async def _flip(self, id: WorkerId, to: Role) -> None:
        try:
            await self._operations.set_role(id, to, self._drain_s, pinned=False)
        except (ClientError, PeerError) as error:
            _log.info("%s has not become a %s worker: %s", id, to, error)
        finally:
            self._crew.stays(id)
