"""All workers and all open requests, as a router believes them to be.

Nothing is kept of a worker that is lost, nor of a request that is settled.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence, Set
from dataclasses import replace

from antiphon.core.costs import PhaseTime, occupied_s
from antiphon.types import (
    FleetEvent,
    Health,
    HealthChanged,
    RequestId,
    RoleChanged,
    Seconds,
    WorkerId,
    WorkerJoined,
    WorkerReported,
)

from .placement import Phase, Placement
from .short_list import ShortList
from .worker_belief import WorkerBelief


class Beliefs:
    """Facts about workers, and the router's own decisions, kept in step."""

    def __init__(self, times: PhaseTime, belief: type[WorkerBelief], short: ShortList) -> None:
        """`short` is told of each change of a worker."""
        self._times, self._belief, self._short = times, belief, short
        self._workers: dict[WorkerId, WorkerBelief] = {}
        self._sorted: list[WorkerBelief] = []
        self._placements: dict[RequestId, Placement] = {}
        self._numerics: dict[RequestId, str] = {}
        self._decisions = 0
        self.empty_since: Seconds | None = None

    @property
    def workers(self) -> Sequence[WorkerBelief]:
        """All that are not lost, in the order of their ids."""
        return self._sorted

    @property
    def open_requests(self) -> Set[RequestId]:
        """The requests that something is kept of."""
        return self._placements.keys() | self._numerics.keys()

    def find(self, worker: WorkerId | None) -> WorkerBelief | None:
        """The worker, unless it is lost."""
        return None if worker is None else self._workers.get(worker)

    def numerics_of(self, request: RequestId) -> str | None:
        """The numerics id under which an earlier attempt of an open request ran."""
        return self._numerics.get(request)

    def observe(self, event: FleetEvent, now: Seconds) -> None:
        """Take in a fact. Mutates. Facts about workers that are not there change nothing."""
        match event:
            case WorkerJoined(info):
                self._remove(info.id, now)
                belief = self._workers[info.id] = self._belief(info, self._times)
                insort(self._sorted, belief, key=_id)
                self.empty_since = None
                self._short.changed(belief)
            case HealthChanged(worker, Health.LOST):
                self._remove(worker, now)
            case HealthChanged(worker, health):
                if belief := self._workers.get(worker):
                    belief.health = health
                    self._short.changed(belief)
            case RoleChanged(worker, role):
                if belief := self._workers.get(worker):
                    belief.role = role
                    self._short.changed(belief)
            case WorkerReported(worker, view):
                if belief := self._workers.get(worker):
                    belief.pace.fade(now, idle=belief.idle)
                    if belief.reported(view, now):
                        self._short.changed(belief)

    def place(self, placement: Placement) -> None:
        """A decision was made. Mutates."""
        self._decisions += 1
        placement.number = self._decisions
        if here := self.find(placement.here):
            here.chosen = placement.number
            self._numerics.setdefault(placement.demand.request, here.info.model.numerics)
        self.put_back(placement)

    def prefilled(self, request: RequestId) -> None:
        """Its prompt is computed. Mutates, once: later tokens change nothing."""
        placement = self._placements.get(request)
        if placement is None:
            return
        here = self.find(placement.here)
        match placement.phase:
            case Phase.WHOLE:
                placement.phase, placement.left = Phase.DECODE, 0
                if here:
                    here.touched()
            case Phase.PREFILL:
                if here:
                    here.offered(placement)
                placement.phase, placement.here, placement.left = Phase.OFFERED, None, 0
            case Phase.OFFERED | Phase.DECODE:
                return
        if here:
            self._short.changed(here)

    def fetched(
        self, request: RequestId, missing_tokens: int, times: PhaseTime
    ) -> Placement | None:
        """What comes from the store is here, but for the last `missing_tokens`. Mutates.

        Returns where the request is; None: it fetches nothing. As it was when it was placed.
        """
        placement = self._placements.get(request)
        if placement is None or not placement.fetch:
            return None
        before = replace(placement)
        missing = min(missing_tokens, placement.fetch)
        placement.fetch = 0
        if missing and placement.phase in (Phase.PREFILL, Phase.WHOLE):
            placement.uncached += missing
            placement.left += missing
            start = placement.demand.tokens - placement.uncached
            placement.occupied_s = occupied_s(times, placement.uncached, start)
        if here := self.find(placement.here):
            here.touched()
            self._short.changed(here)
        return before

    def lift(self, request: RequestId) -> Placement | None:
        """Take the request off its workers, and return where it was. Mutates; keeps numerics."""
        placement = self._placements.pop(request, None)
        if placement is not None:
            if here := self.find(placement.here):
                here.drop(placement)
                self._short.changed(here)
            if after := self.find(placement.next):
                after.drop(placement)
                self._short.changed(after)
                if after.chosen == placement.number:
                    after.chosen = placement.next_chosen
        return placement

    def put_back(self, placement: Placement | None) -> None:
        """Undo `lift`: it counts as load, not as another decision. Mutates."""
        if placement is None:
            return
        self._placements[placement.demand.request] = placement
        if here := self.find(placement.here):
            here.put(placement)
            self._short.changed(here)
        if after := self.find(placement.next):
            after.expect(placement)
            self._short.changed(after)
            if after.chosen < placement.number:
                placement.next_chosen, after.chosen = after.chosen, placement.number

    def settle(self, request: RequestId) -> None:
        """Forget the request. Mutates."""
        self.lift(request)
        self._numerics.pop(request, None)

    def _remove(self, worker: WorkerId, now: Seconds) -> None:
        belief = self._workers.pop(worker, None)
        if belief is not None:
            del self._sorted[bisect_left(self._sorted, worker, key=_id)]
            self._short.left(worker)
            for placement in belief.placements():
                placement.here = None if placement.here == worker else placement.here
                placement.next = None if placement.next == worker else placement.next
        if not self._sorted and self.empty_since is None:
            self.empty_since = now


def _id(worker: WorkerBelief) -> WorkerId:
    return worker.info.id
