"""Offers that nobody has taken yet, and when their owners must hear that they are still wanted."""

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
        self._next: Seconds | None = None
        self._changed = False

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
        owner.renew_at = min(owner.renew_at, now + interval)
        self._changed = True

    def remove(self, offer: Offer) -> None:
        """Mutates: the lease, which must be live, is over."""
        owner = self._owners[offer.owner]
        del owner.intervals[offer.lease]
        if not owner.intervals:
            del self._owners[offer.owner]
            self._changed = True

    def next(self) -> Seconds | None:
        """When `due` has something to say next.

        Asked for with each fact, and looked for once after each change.
        """
        if self._changed:
            self._next = min((one.renew_at for one in self._owners.values()), default=None)
            self._changed = False
        return self._next

    def due(self, now: Seconds) -> list[Renew]:
        """Mutates: the renewals of all owners whose time has come."""
        renewals: list[Renew] = []
        for name, owner in self._owners.items():
            if owner.renew_at <= now:
                owner.renew_at = now + min(owner.intervals.values())
                renewals.append(Renew(owner=name, leases=tuple(owner.intervals)))
                self._changed = True
        return renewals
