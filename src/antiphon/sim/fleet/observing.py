"""What a planner sees of a virtual fleet: the counts that live workers report, and the calls.

Workers are looked at as often as they report, so that what is said of an interval is a mean over
it; queues are what they are at its end.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, pvariance

from antiphon.core.planner import Observation, PoolSeen
from antiphon.types import CallRecord, Role, Seconds, WorkerId, WorkerView

from .fleet import Fleet
from .steered_worker import SteeredWorker

Steered = Mapping[WorkerId, SteeredWorker]


class Observing:
    """Watches a fleet; `observe` says what came since it was last asked."""

    def __init__(self, fleet: Fleet, workers: Steered, roles: Sequence[Role]) -> None:
        self._fleet, self._workers, self._roles = fleet, workers, roles
        self._records: list[CallRecord] = []
        self._prompts: list[int] = []
        self._at: Seconds = 0.0
        self._running: dict[Role, list[int]] = {role: [] for role in roles}
        fleet.users.watch(self._records.append)
        fleet.users.on_arrived = lambda request: self._prompts.append(len(request.prompt))
        self._sample_s = fleet.spec.config.cluster.heartbeat_s
        fleet.at(self._sample_s, self._sample)

    def observe(self) -> Observation:
        """The interval that ends now. Mutates: the next one begins."""
        users, records = self._fleet.users, self._records
        now = users.now
        prompts = self._prompts
        ended = sum(one.prompt_tokens or 0 for one in records)
        cached = sum(one.cached_tokens or 0 for one in records)
        answers = [one.output_tokens for one in records if one.error is None]
        mean = fmean(prompts) if prompts else 0.0
        seen = Observation(
            at=now,
            seconds=now - self._at,
            requests=len(prompts),
            input_tokens=mean,
            output_tokens=fmean(answers) if answers else 0.0,
            hit_rate=cached / max(1, ended),
            input_variation=pvariance(prompts) / mean**2 if prompts else 0.0,
            pools=self._pools(),
        )
        records.clear()
        prompts.clear()
        self._at = now
        return seen

    def _sample(self) -> None:
        views = self._fleet.views()
        for role, counts in self._running.items():
            ready = self._ready(role, views)
            counts.append(sum(views[id].running_sequences for id in ready))
        self._fleet.at(self._fleet.users.now + self._sample_s, self._sample)

    def _ready(self, role: Role, views: Mapping[WorkerId, WorkerView]) -> list[WorkerId]:
        """Workers of that role that serve."""
        return [
            id
            for id, one in self._workers.items()
            if one.pool.role is role and not one.draining and id in views
        ]

    def _pools(self) -> tuple[PoolSeen, ...]:
        views = self._fleet.views()
        life = self._fleet.cluster.gateway.life
        held = (0, 0) if life is None else life.book.held
        return tuple(self._pool(role, views, held[role is Role.DECODE]) for role in self._roles)

    def _pool(self, role: Role, views: Mapping[WorkerId, WorkerView], held: int) -> PoolSeen:
        ready = self._ready(role, views)
        mine = [one for one in self._workers.values() if one.role is role]
        leaving = sum(one.draining and one.becomes is None for one in mine)
        warm = [id for id in ready if self._workers[id].ready_at <= self._at]
        before = {id: self._workers[id].before for id in warm}
        changes = [(views[id], old) for id, old in before.items() if old is not None]
        for id in ready:
            self._workers[id].before = views[id]
        counts = self._running[role]
        running = fmean(counts) if counts else 0.0
        counts.clear()
        return PoolSeen(
            role=role,
            ready=len(ready),
            starting=len(mine) - len(ready) - leaving,
            draining=leaving,
            cold=len(ready) - len(warm),
            pinned=sum(one.pinned and not one.draining for one in mine),
            held=held,
            queued=sum(views[id].waiting + views[id].pulling for id in ready),
            queued_tokens=sum(views[id].waiting_tokens for id in ready),
            running=running,
            busy_s=sum(new.busy_s_total - old.busy_s_total for new, old in changes),
            steps=sum(new.steps_total - old.steps_total for new, old in changes),
            tokens=sum(
                new.computed_tokens_total - old.computed_tokens_total for new, old in changes
            ),
        )
