"""What a planner sees of a virtual fleet: the counts that live workers report, and the calls."""

from collections.abc import Mapping, Sequence

from antiphon.core.planner import Observation, SteeredWorker, Watch
from antiphon.types import CallRecord, Role, WorkerId

from .fleet import Fleet

Steered = Mapping[WorkerId, SteeredWorker]


class Observing:
    """Watches a fleet; `observe` says what came since it was last asked."""

    def __init__(self, fleet: Fleet, workers: Steered, roles: Sequence[Role]) -> None:
        self._fleet, self._workers = fleet, workers
        self._watch = Watch(roles, at=0.0)
        fleet.users.watch(self._ended)
        fleet.users.on_arrived = lambda request: self._watch.arrived(len(request.prompt))
        self._sample_s = fleet.spec.config.cluster.heartbeat_s
        fleet.at(self._sample_s, self._sample)

    def observe(self) -> Observation:
        """The interval that ends now. Mutates: the next one begins."""
        life = self._fleet.cluster.gateway.life
        held = (0, 0) if life is None else life.book.held
        return self._watch.observe(self._fleet.users.now, self._workers, self._fleet.views(), held)

    def _ended(self, record: CallRecord) -> None:
        answered = record.output_tokens if record.error is None else None
        self._watch.ended(record.prompt_tokens or 0, record.cached_tokens or 0, answered)

    def _sample(self) -> None:
        self._watch.sample(self._workers, self._fleet.views())
        self._fleet.at(self._fleet.users.now + self._sample_s, self._sample)
