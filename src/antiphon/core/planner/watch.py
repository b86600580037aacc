"""From what happens to what a planner sees: the counts of one interval, live or in virtual time.

requests come ──► arrived ─┐
requests end  ──► ended   ─┼──► observe ──► Observation, and the next interval begins
each report   ──► sample  ─┘
"""

from collections.abc import Mapping, Sequence

from antiphon.types import Role, Seconds, WorkerId, WorkerView

from .observation import Observation, PoolSeen
from .steered_worker import SteeredWorker

Workers = Mapping[WorkerId, SteeredWorker]
Views = Mapping[WorkerId, WorkerView]


class _Mean:
    """Of whole numbers, exact: also of their squares, for the variance."""

    def __init__(self) -> None:
        self.count, self._sum, self._squares = 0, 0, 0

    def add(self, value: int) -> None:
        self.count += 1
        self._sum += value
        self._squares += value * value

    @property
    def value(self) -> float:
        """0 of nothing."""
        return self._sum / self.count if self.count else 0.0

    @property
    def variation(self) -> float:
        """The squared coefficient of variation; 0 of nothing."""
        if not self._sum:
            return 0.0
        return (self.count * self._squares - self._sum**2) / self._sum**2


class Watch:
    """Counts what happens to the pools of `roles`; memory does not grow with what is counted.

    Workers are to be sampled as often as they report, so that what is said of an interval is a mean
    over it; queues are what they are at its end.
    """

    def __init__(self, roles: Sequence[Role], at: Seconds) -> None:
        self._roles = tuple(roles)
        self._at = at
        self._before: dict[WorkerId, WorkerView] = {}
        """What each worker had counted when the interval began."""
        self._begin()

    def _begin(self) -> None:
        self._prompts, self._answers = _Mean(), _Mean()
        self._looked_up, self._cached = 0, 0
        self._running = {role: _Mean() for role in self._roles}

    def arrived(self, prompt_tokens: int) -> None:
        """A request came. Mutates."""
        self._prompts.add(prompt_tokens)

    def ended(self, prompt_tokens: int, cached_tokens: int, output_tokens: int | None) -> None:
        """A request is over; `output_tokens` None: it has not got its answer. Mutates."""
        self._looked_up += prompt_tokens
        self._cached += cached_tokens
        if output_tokens is not None:
            self._answers.add(output_tokens)

    def sample(self, workers: Workers, views: Views) -> None:
        """Look at what workers report. Mutates."""
        for role, running in self._running.items():
            running.add(sum(views[id].running_sequences for id in _ready(role, workers, views)))

    def observe(
        self,
        now: Seconds,
        workers: Workers,
        views: Views,
        held: tuple[int, int],
        starts_s: tuple[Seconds, ...] = (),
    ) -> Observation:
        """The interval that ends now. Mutates: the next one begins.

        `held`: requests that wait at the gateway for a worker, and with an offer for one that
        decodes. `starts_s`: see `Observation`.
        """
        seen = Observation(
            at=now,
            seconds=now - self._at,
            requests=self._prompts.count,
            input_tokens=self._prompts.value,
            output_tokens=self._answers.value,
            hit_rate=self._cached / max(1, self._looked_up),
            input_variation=self._prompts.variation,
            pools=tuple(
                self._pool(role, workers, views, held[role is Role.DECODE]) for role in self._roles
            ),
            starts_s=starts_s,
        )
        self._before = {id: view for id, view in views.items() if id in workers}
        self._begin()
        self._at = now
        return seen

    def _pool(self, role: Role, workers: Workers, views: Views, held: int) -> PoolSeen:
        ready = _ready(role, workers, views)
        mine = [one for one in workers.values() if one.heading is role]
        leaving = sum(one.draining and one.becomes is None for one in mine)
        warm = [
            id for id in ready if workers[id].ready_at <= self._at and not self._fell(id, views)
        ]
        changes = [(views[id], self._before[id]) for id in warm if id in self._before]
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
            running=self._running[role].value,
            busy_s=sum(new.busy_s_total - old.busy_s_total for new, old in changes),
            steps=sum(new.steps_total - old.steps_total for new, old in changes),
            tokens=sum(
                new.computed_tokens_total - old.computed_tokens_total for new, old in changes
            ),
        )

    def _fell(self, id: WorkerId, views: Views) -> bool:
        """It has counted less than before, so it has begun anew, whatever is said of it."""
        if (old := self._before.get(id)) is None:
            return False
        return any(
            new < before for new, before in zip(_totals(views[id]), _totals(old), strict=True)
        )


def _totals(view: WorkerView) -> tuple[float, ...]:
    """What only grows within a worker's life."""
    return view.busy_s_total, view.steps_total, view.computed_tokens_total


def _ready(role: Role, workers: Workers, views: Views) -> list[WorkerId]:
    """Workers of that role that serve."""
    return [
        id for id, one in workers.items() if one.role is role and not one.draining and id in views
    ]
