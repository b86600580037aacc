"""What a planner sees of a virtual fleet: the counts that live workers report, and the calls."""

from collections.abc import Callable, Mapping, Sequence

from antiphon.core.planner import Observation, SteeredWorker, Watch
from antiphon.types import CallRecord, Role, Seconds, WorkerId, WorkerView

from .fleet import Fleet

Views = Mapping[WorkerId, WorkerView]
Steered = Callable[[Views], Mapping[WorkerId, SteeredWorker]]
"""The workers that a planner may move, when these serve and report so."""


class Observing:
    """Watches a fleet; `observe` says what came since it was last asked."""

    def __init__(self, fleet: Fleet, workers: Steered, roles: Sequence[Role]) -> None:
        self._fleet, self._workers = fleet, workers
        self._watch = Watch(roles, at=0.0)
        fleet.users.watch(self._ended)
        fleet.users.on_arrived = lambda request: self._watch.arrived(len(request.prompt))
        self._sample_s = fleet.spec.config.cluster.heartbeat_s
        fleet.at(self._sample_s, self._sample)

    def observe(self, starts_s: tuple[Seconds, ...]) -> Observation:
        """The interval that ends now, with how long workers took to start. Mutates: the next one
        begins."""
        life = self._fleet.cluster.gateway.life
        held = (0, 0) if life is None else life.book.held
        views = self._fleet.views()
        return self._watch.observe(
            self._fleet.users.now, self._workers(views), views, held, starts_s
        )

    def _ended(self, record: CallRecord) -> None:
        answered = record.output_tokens if record.error is None else None
        self._watch.ended(record.prompt_tokens or 0, record.cached_tokens or 0, answered)

    def _sample(self) -> None:
        views = self._fleet.views()
        self._watch.sample(self._workers(views), views)
        self._fleet.at(self._fleet.users.now + self._sample_s, self._sample)
