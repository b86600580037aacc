"""A planner that steers a virtual fleet: it sees what the live one would see, and its moves happen.

interval over ─► Observation ─► Planner.decide ─► Add: a worker joins `ready_s` later
                                                  Take: drained, then gone
                                                  Flip: drained, then there in the other role
"""

from collections.abc import Mapping
from itertools import count

from antiphon.core.faults import Node
from antiphon.core.planner import (
    Add,
    Decision,
    Flip,
    Planner,
    PlannerRules,
    SteeredWorker,
    Take,
    to_leave,
)
from antiphon.errors import UsageError
from antiphon.types import Drained, Role, Seconds, WorkerId

from .fleet import Fleet, Pool
from .observing import Observing


class Steering:
    """Drives one planner on one fleet. Make it before the fleet runs.

    `templates`: what a new worker of each role is like. `flip_s`: from when a worker is empty until
    it serves in its new role. `drain_s`: a worker that leaves has so long to finish what it has;
    the rest is moved. `advisory`: decisions are written down, and nothing moves.
    """

    def __init__(
        self,
        fleet: Fleet,
        rules: PlannerRules,
        templates: Mapping[Role, Pool],
        planner: Planner,
        *,
        flip_s: Seconds = 5.0,
        drain_s: Seconds = 120.0,
        advisory: bool = False,
    ) -> None:
        strangers = [pool.name for pool in fleet.spec.pools if pool.role not in rules.roles]
        if strangers:
            raise UsageError(f"pool {strangers[0]}: the planner's roles leave out its role")
        self.decisions: list[Decision] = []
        self.sizes: list[tuple[Seconds, Mapping[Role, int]]] = []
        """Workers of each role that cost something, ready or not, after each decision."""
        self._fleet, self._rules, self._planner = fleet, rules, planner
        self._templates, self._advisory = templates, advisory
        self._flip_s, self._drain_s = flip_s, drain_s
        self._numbers = count(1)
        self._gone: list[tuple[Seconds, Seconds, int]] = []
        """Since when and until when workers that are gone had how many devices."""
        self._workers = {
            id: SteeredWorker(pool.role, since=0.0, ready_at=0.0, devices=pool.devices)
            for id, pool in fleet.pools.items()
        }
        self._observing = Observing(fleet, self._workers, rules.roles)
        fleet.on_drained = self._drained
        fleet.users.on_began = self._began
        fleet.at(rules.interval_s, self._turn)

    def device_s(self, until: Seconds) -> Seconds:
        """Device seconds that were paid for by then, from an `Add` on until a drain is over."""
        here = [(one.since, until, one.devices) for one in self._workers.values()]
        return sum(
            max(0.0, min(end, until) - since) * devices
            for since, end, devices in (*self._gone, *here)
        )

    def add_by_hand(self, role: Role) -> None:
        """An operator adds a worker: the planner counts with it and leaves it alone."""
        self._add(role, pinned=True)

    def _turn(self) -> None:
        decision = self._planner.decide(self._observing.observe())
        self.decisions.append(decision)
        if not self._advisory:
            self._carry_out(decision)
        roles = [one.heading for one in self._workers.values()]
        self.sizes.append((decision.at, {role: roles.count(role) for role in self._rules.roles}))
        self._fleet.at(decision.ask_again_at, self._turn)

    # ── moves ────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, decision: Decision) -> None:
        for move in decision.moves:
            match move:
                case Add(role, workers):
                    for _ in range(workers):
                        self._add(role)
                case Take(role, workers):
                    self._drain(role, workers, None)
                case Flip(role, to, workers):
                    self._drain(role, workers, to)

    def _add(self, role: Role, *, pinned: bool = False) -> None:
        now = self._fleet.users.now
        ready_at = now + self._rules.ready_s
        self._start(self._new_id(role), role, since=now, ready_at=ready_at, pinned=pinned)

    def _new_id(self, role: Role) -> WorkerId:
        return WorkerId(f"{self._templates[role].name}+{next(self._numbers)}")

    def _start(
        self, id: WorkerId, role: Role, *, since: Seconds, ready_at: Seconds, pinned: bool
    ) -> None:
        pool = self._templates[role]
        self._workers[id] = SteeredWorker(
            role, since=since, ready_at=ready_at, devices=pool.devices, pinned=pinned
        )
        self._fleet.at(ready_at, lambda: self._fleet.start_worker(id, pool))

    def _drain(self, role: Role, workers: int, becomes: Role | None) -> None:
        for id in to_leave(self._workers, self._fleet.views(), role, workers):
            one = self._workers[id]
            one.draining, one.becomes = True, becomes
            self._fleet.drain(id, self._drain_s)

    def _began(self, node: Node) -> None:
        """A new life, after a crash too: its caches are empty, and it counts from 0."""
        if (one := self._workers.get(WorkerId(node))) is not None:
            one.ready_at = self._fleet.now - self._fleet.join_s

    def _drained(self, what: Drained) -> None:
        """It is empty: it goes, or comes back in its new role."""
        worker = self._workers.get(what.worker)
        if worker is None or not worker.draining:
            return
        del self._workers[what.worker]
        now, role = self._fleet.users.now, worker.becomes
        if role is None:
            self._fleet.end_worker(what.worker)
            self._gone.append((worker.since, now, worker.devices))
            return
        successor = self._new_id(role)
        self._fleet.end_worker(what.worker, successor)
        ready_at = now + self._flip_s
        self._start(successor, role, since=worker.since, ready_at=ready_at, pinned=False)
