"""Workers that an operator takes out of a fleet in order, and puts back."""

from collections.abc import Sequence

from antiphon.types import Drained, Seconds, WorkerId

from .fleet import Fleet
from .scheduled_faults import DRAIN_S, PlannedDrain


class FleetDrains:
    """Carries out `drains` on a fleet that is about to run; `done` says which were seen through."""

    def __init__(self, fleet: Fleet, drains: Sequence[PlannedDrain]) -> None:
        self.done: list[tuple[Seconds, WorkerId]] = []
        """When each was empty, and who."""
        self._fleet = fleet
        self._away_s: dict[WorkerId, Seconds] = {}
        fleet.on_drained = self._drained
        for drain in drains:
            fleet.at(drain.at_s, lambda drain=drain: self._begin(drain))

    def _begin(self, drain: PlannedDrain) -> None:
        worker = WorkerId(drain.worker)
        self._away_s[worker] = drain.away_s
        self._fleet.drain(worker, DRAIN_S)

    def _drained(self, what: Drained) -> None:
        away_s = self._away_s.pop(what.worker, None)
        if away_s is None:
            return
        self.done.append((self._fleet.users.now, what.worker))
        process = self._fleet.cluster.processes[what.worker]
        process.crash()
        self._fleet.at(
            self._fleet.users.now + away_s, lambda: None if process.alive else process.start()
        )
