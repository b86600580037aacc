"""A planner that steers a virtual fleet: it sees what the live one would see, and its moves happen.

interval over ─► Observation ─► Planner.decide ─► Add: a worker joins `ready_s` later
                                                  Take: drained, then gone
                                                  Flip: drained, then there in the other role
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from antiphon.core.goodput import judge, slo_of
from antiphon.core.planner import (
    Add,
    Decision,
    Flip,
    Observation,
    Planner,
    PlannerRules,
    PoolSeen,
    Take,
)
from antiphon.types import CallRecord, Drained, Role, Seconds, WorkerId, WorkerView

from .fleet import Fleet, Pool

_DRAIN_S: Seconds = 120.0


@dataclass(slots=True)
class _Worker:
    pool: Pool
    role: Role
    since: Seconds
    """When it was added: from then on it costs."""
    ready_at: Seconds
    busy_s: Seconds = 0.0
    """When the last interval ended."""
    draining: bool = False
    becomes: Role | None = None


class Steering:
    """Drives one planner on one fleet. `advisory`: decisions are written down, and nothing moves.

    `templates`: what a new worker of each role is like. Attach before the fleet runs.
    """

    def __init__(
        self,
        fleet: Fleet,
        planner: Planner,
        rules: PlannerRules,
        templates: Mapping[Role, Pool],
        *,
        advisory: bool = False,
    ) -> None:
        self.decisions: list[Decision] = []
        self._fleet, self._planner, self._rules = fleet, planner, rules
        self._templates, self._advisory = templates, advisory
        self._workers: dict[WorkerId, _Worker] = {}
        self._numbers: Counter[Role] = Counter()
        self._records: list[CallRecord] = []
        self._begun_before = 0
        self._paid_s: Seconds = 0.0
        self._slos = dict(fleet.users.slos)
        fleet.users.watch(self._records.append)
        fleet.on_drained = self._drained
        for id, pool in fleet.pools.items():
            self._workers[id] = _Worker(pool, pool.role, 0.0, 0.0)
        fleet.at(rules.interval_s, self._turn)

    @property
    def device_s(self) -> Seconds:
        """Device seconds that were paid for so far."""
        now = self._fleet.users.now
        return self._paid_s + sum(
            (now - one.since) * one.pool.devices for one in self._workers.values()
        )

    # ── intervals ────────────────────────────────────────────────────────────────────────────

    def _turn(self) -> None:
        seen = self._observe()
        decision = self._planner.decide(seen)
        self.decisions.append(decision)
        if not self._advisory:
            self._carry_out(decision)
        self._fleet.at(decision.ask_again_at, self._turn)

    def _observe(self) -> Observation:
        users, records = self._fleet.users, self._records
        views = self._fleet.views()
        requests = users.begun - self._begun_before
        self._begun_before = users.begun
        verdicts = [judge(one, slo_of(one.slo_class, self._slos)) for one in records]
        prompts = [one for one in records if one.prompt_tokens]
        prompt_tokens = sum(one.prompt_tokens or 0 for one in prompts)
        cached = sum(one.cached_tokens or 0 for one in prompts)
        seen = Observation(
            at=users.now,
            requests=requests,
            input_tokens=prompt_tokens / max(1, len(prompts)),
            output_tokens=sum(one.output_tokens for one in records) / max(1, len(records)),
            hit_rate=cached / max(1, prompt_tokens),
            ttft_met=_share([one.ttft_met for one in verdicts]),
            tpot_met=_share([one.tpot_met for one in verdicts]),
            pools=tuple(self._pool(role, views) for role in self._rules.roles),
        )
        records.clear()
        return seen

    def _pool(self, role: Role, views: Mapping[WorkerId, WorkerView]) -> PoolSeen:
        now = self._fleet.users.now
        mine = {id: one for id, one in self._workers.items() if (one.becomes or one.role) == role}
        ready = {
            id: one
            for id, one in mine.items()
            if id in views and not one.draining and one.ready_at <= now
        }
        busy = waiting_s = used = 0.0
        for id, one in ready.items():
            view = views[id]
            busy += (view.busy_s_total - one.busy_s) / self._rules.interval_s
            one.busy_s = view.busy_s_total
            waiting_s += self._waiting_s(one, view)
            used += view.held_pages / view.total_pages
        leaving = sum(one.draining and one.becomes is None for one in mine.values())
        return PoolSeen(
            role=role,
            ready=len(ready),
            starting=len(mine) - len(ready) - leaving,
            draining=leaving,
            cold=sum(now - one.ready_at < self._rules.interval_s for one in ready.values()),
            busy=busy / max(1, len(ready)),
            backlog_s=waiting_s + self._held_s(role),
            used=used / max(1, len(ready)),
        )

    def _waiting_s(self, worker: _Worker, view: WorkerView) -> Seconds:
        """Work that has not begun: prompts at this worker's pace, or steps of who is to decode."""
        if worker.role is Role.DECODE:
            waiting = view.waiting + view.pulling
            return waiting * worker.pool.phases.decode_step_s(1, 1)
        return worker.pool.phases.prefill_s(view.waiting_tokens)

    def _held_s(self, role: Role) -> Seconds:
        """Of those that the gateway holds, each at the mean work of a request."""
        life = self._fleet.cluster.gateway.life
        if life is None:
            return 0.0
        for_route, for_decode = life.book.held
        phases = self._templates[role].phases
        mean = self._mean_prompt()
        if role is Role.DECODE:
            return for_decode * phases.decode_step_s(1, mean)
        return for_route * phases.prefill_s(mean)

    def _mean_prompt(self) -> int:
        prompts = [one.prompt_tokens for one in self._records if one.prompt_tokens]
        return round(sum(prompts) / len(prompts)) if prompts else 1000

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

    def _add(self, role: Role) -> None:
        now = self._fleet.users.now
        self._numbers[role] += 1
        pool = self._templates[role]
        id = WorkerId(f"{pool.name}+{self._numbers[role]}")
        ready_at = now + self._rules.ready_s
        self._workers[id] = _Worker(pool, role, now, ready_at)
        self._fleet.at(ready_at, lambda: self._fleet.start_worker(id, pool))

    def _drain(self, role: Role, workers: int, becomes: Role | None) -> None:
        """Those that have least to do; the newest first among equals."""
        views = self._fleet.views()
        ready = [
            (id, one)
            for id, one in self._workers.items()
            if one.role is role and not one.draining and id in views
        ]
        ready.sort(key=lambda pair: (views[pair[0]].running, -pair[1].since, pair[0]))
        for id, one in ready[:workers]:
            one.draining, one.becomes = True, becomes
            self._fleet.drain(id, _DRAIN_S)

    def _drained(self, what: Drained) -> None:
        """It is empty: it goes, or comes back in its new role."""
        worker = self._workers.get(what.worker)
        if worker is None or not worker.draining:
            return
        now = self._fleet.users.now
        del self._workers[what.worker]
        self._fleet.end_worker(what.worker)
        if worker.becomes is None:
            self._paid_s += (now - worker.since) * worker.pool.devices
            return
        role = worker.becomes
        self._numbers[role] += 1
        pool = replace(self._templates[role], name=worker.pool.name)
        id = WorkerId(f"{self._templates[role].name}+{self._numbers[role]}")
        ready_at = now + self._rules.flip_s
        self._workers[id] = _Worker(pool, role, worker.since, ready_at)
        self._fleet.at(ready_at, lambda: self._fleet.start_worker(id, pool))


def _share(met: list[bool]) -> float:
    return sum(met) / len(met) if met else 1.0
