"""Offers that nobody has taken yet, and when their owners must hear that they are still wanted."""

from heapq import heapify, heappop, heappush

from antiphon.errors import BugError
from antiphon.types import LeaseId, Offer, Renew, Seconds, WorkerId

RENEWALS_A_TTL = 3
LEAST_INTERVAL_S = 0.01
"""A time to live comes from a worker, and may be tiny."""


class _Owner:
    """The live leases of one worker, and the time of their next common renewal."""

    def __init__(self) -> None:
        self.intervals: dict[LeaseId, Seconds] = {}
        self.renew_at: Seconds = float("inf")


class Handovers:
    """All live leases of an owner are renewed together, as often as the shortest one needs it."""

    def __init__(self) -> None:
        self._owners: dict[WorkerId, _Owner] = {}
        self._due: list[tuple[Seconds, WorkerId]] = []
        """A heap of owners' next renewals, and of some that are none any more."""

    def __len__(self) -> int:
        return sum(len(owner.intervals) for owner in self._owners.values())

    def has(self, owner: WorkerId, lease: LeaseId) -> bool:
        """Is this offer live?"""
        return owner in self._owners and lease in self._owners[owner].intervals

    def add(self, offer: Offer, now: Seconds) -> None:
        """Mutates: renew this lease, which must not be live, until `remove`."""
        if self.has(offer.owner, offer.lease):
            raise BugError(f"lease {offer.lease} of {offer.owner} is live already")
        interval = max(offer.ttl_s / RENEWALS_A_TTL, LEAST_INTERVAL_S)
        owner = self._owners.setdefault(offer.owner, _Owner())
        owner.intervals[offer.lease] = interval
        if now + interval < owner.renew_at:
            self._renew(offer.owner, owner, now + interval)

    def remove(self, offer: Offer) -> None:
        """Mutates: the lease, which must be live, is over."""
        owner = self._owners[offer.owner]
        del owner.intervals[offer.lease]
        if not owner.intervals:
            del self._owners[offer.owner]

    def next(self) -> Seconds | None:
        """When `due` has something to say next. Asked for with each fact."""
        due = self._due
        while due and not self._is_so(*due[0]):
            heappop(due)
        return due[0][0] if due else None

    def _is_so(self, at: Seconds, name: WorkerId) -> bool:
        owner = self._owners.get(name)
        return owner is not None and owner.renew_at == at

    def _renew(self, name: WorkerId, owner: _Owner, at: Seconds) -> None:
        owner.renew_at = at
        heappush(self._due, (at, name))
        if len(self._due) > 2 * len(self._owners) + 64:
            self._due = [(one.renew_at, name) for name, one in self._owners.items()]
            heapify(self._due)

    def due(self, now: Seconds) -> list[Renew]:
        """Mutates: the renewals of all owners whose time has come."""
        renewals: list[Renew] = []
        for name, owner in self._owners.items():
            if owner.renew_at <= now:
                self._renew(name, owner, now + min(owner.intervals.values()))
                renewals.append(Renew(owner=name, leases=tuple(owner.intervals)))
        return renewals
