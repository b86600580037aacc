"""A planner that steers a virtual fleet: it sees what the live one would see, and its moves happen.

interval over ─► Observation ─► Planner.decide ─► MoveBook ─► AddOrder: it joins `ready_s` later
                                                              EndOrder: drained, then gone
                                                              FlipOrder: drained, then there in the
                                                                         other role

A gateway that dies forgets what it was draining, or never heard of it: its next life is told again,
so that each order is settled. The planner here outlives it; the live one does not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from antiphon.core.faults import Node
from antiphon.core.planner import (
    AddOrder,
    Decision,
    EndOrder,
    FlipOrder,
    MoveBook,
    Order,
    Planner,
    PlannerRules,
    PresentWorker,
    SteeredWorker,
)
from antiphon.errors import UsageError
from antiphon.types import Drained, Role, Seconds, WorkerId

from ..cluster_setup import GATEWAY
from .fleet import Fleet, Pool
from .observing import Observing, Views


@dataclass(slots=True)
class _Process:
    """A worker that has its devices. `lives`: how many have begun. `since`: from when on it is paid
    for."""

    pool: Pool
    since: Seconds
    pinned: bool = False
    lives: int = 1


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
        self._book = MoveBook(
            rules.budget,
            devices={role: pool.devices for role, pool in templates.items()},
            name=lambda role, _taken: self._new_id(role),
        )
        self._draining: dict[WorkerId, EndOrder | FlipOrder] = {}
        self._gone: list[tuple[Seconds, Seconds, int]] = []
        """Since when and until when workers that are gone had how many devices."""
        self._processes = {id: _Process(pool, since=0.0) for id, pool in fleet.pools.items()}
        self._observing = Observing(fleet, self._workers, rules.roles)
        fleet.on_drained = self._drained
        fleet.users.on_began = self._began
        fleet.at(0.0, self._begin)
        fleet.at(rules.interval_s, self._turn)

    def device_s(self, until: Seconds) -> Seconds:
        """Device seconds that were paid for by then, from an order on until a drain is over."""
        here = [(one.since, until, one.pool.devices) for one in self._processes.values()]
        return sum(
            max(0.0, min(end, until) - since) * devices
            for since, end, devices in (*self._gone, *here)
        )

    def add_by_hand(self, role: Role) -> None:
        """An operator adds a worker: the planner counts with it and leaves it alone."""
        self._add(self._new_id(role), role, pinned=True)

    def _begin(self) -> None:
        """Whoever is there from the beginning is not new."""
        self._book.look(self._present(self._fleet.views()), 0.0)

    def _turn(self) -> None:
        decision = self._planner.decide(self._observing.observe(self._book.starts_s()))
        self.decisions.append(decision)
        if not self._advisory:
            now = self._fleet.users.now
            present = self._present(self._fleet.views())
            self._carry_out(self._book.carry_out(decision.moves, present, now))
        roles = [one.heading for one in self._workers(self._fleet.views()).values()]
        self.sizes.append((decision.at, {role: roles.count(role) for role in self._rules.roles}))
        self._fleet.at(decision.ask_again_at, self._turn)

    # ── facts ────────────────────────────────────────────────────────────────────────────────

    def _workers(self, views: Views) -> Mapping[WorkerId, SteeredWorker]:
        return self._book.look(self._present(views), self._fleet.users.now)

    def _present(self, views: Views) -> dict[WorkerId, PresentWorker]:
        return {
            id: PresentWorker(
                role=one.pool.role,
                view=views.get(id),
                life=str(one.lives),
                devices=one.pool.devices,
                pinned=one.pinned,
                since=one.since,
            )
            for id, one in self._processes.items()
        }

    def _began(self, node: Node) -> None:
        """A new life, after a crash too: its caches are empty, and it counts from 0."""
        if node == GATEWAY and self._draining:  # which hears nothing before its life is there
            self._fleet.at(self._fleet.users.now, self._drain_all)
        if (one := self._processes.get(WorkerId(node))) is not None:
            one.lives += 1

    # ── orders ───────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, orders: Iterable[Order]) -> None:
        for order in orders:
            match order:
                case AddOrder(_, worker, role):
                    self._add(worker, role)
                case EndOrder(_, worker) | FlipOrder(_, worker):
                    self._draining[worker] = order
                    self._fleet.drain(worker, self._drain_s)

    def _drain_all(self) -> None:
        for worker in self._draining:
            self._fleet.drain(worker, self._drain_s)

    def _add(self, id: WorkerId, role: Role, *, pinned: bool = False) -> None:
        now = self._fleet.users.now
        one = _Process(self._templates[role], since=now, pinned=pinned)
        self._start(id, one, now + self._rules.ready_s)

    def _new_id(self, role: Role) -> WorkerId:
        return WorkerId(f"{self._templates[role].name}+{next(self._numbers)}")

    def _start(self, id: WorkerId, one: _Process, at: Seconds) -> None:
        self._processes[id] = one
        self._fleet.at(at, lambda: self._fleet.start_worker(id, one.pool))

    def _drained(self, what: Drained) -> None:
        """It is empty: it goes, or comes back in its new role."""
        order = self._draining.pop(what.worker, None)
        if order is None:
            return
        before, now = self._processes.pop(what.worker), self._fleet.users.now
        if isinstance(order, EndOrder):
            self._fleet.end_worker(what.worker)
            self._gone.append((before.since, now, before.pool.devices))
        else:
            successor = self._new_id(order.to)
            self._fleet.end_worker(what.worker, successor)
            became = _Process(self._templates[order.to], since=before.since)
            self._start(successor, became, now + self._flip_s)
        self._book.over(order.number)
