"""Which pages an owner keeps for others, for whom, and until when.

    offer ──▶ offered ──grant──▶ granted ──take──▶ taken ──acknowledge──▶ gone
                 │                  ▲ │               │ │
                 │                  │ └──── grant ────┘ │      a new grant fences the earlier taker
                 └──────────────────┴── release, expire ┴──▶ gone

A lease is a duration that the owner counts from when it hears: from the offer, from a grant, a
take, and each renewal by its holder. The holder is the gateway until the lease is taken, then the
taker; a new grant gives it back to the gateway. So a taker that dies holds nothing for longer than
one time to live, and one that was replaced can neither keep nor give away what is another's.

Whatever ends a lease drops its page references, exactly once. Leases only keep pages from being
used again; that a reader got what was offered, generations and checksums say.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from antiphon.core.kv.page_tally import PageTally
from antiphon.errors import BugError
from antiphon.types import (
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    PageId,
    RequestId,
    Seconds,
)

LEASES = "leases"
"""The lease book's name in a record of decisions."""
LEASES_METHODS = (
    "grant",
    "take",
    "renew",
    "acknowledge",
    "release",
    "release_of",
    "drop_all",
    "hold",
    "let_go",
)
"""The methods of `LeaseBook` that make up its record. The scheduler calls the others."""


@dataclass(slots=True, eq=False)
class _Lease:
    request: RequestId
    attempt: int
    """Of the newest grant; before there is one, of the offer."""
    references: Sequence[PageId]
    expires_at: Seconds
    taker: Incarnation | None = None
    taken: bool = False


class LeaseBook:
    """The leases of one owner. `drop` gets the references of each lease that ends.

    Answers are `LeaseHeld` (done, and the lease lives for `ttl_s` from `now` unless it was to
    end) or `LeaseRefused` (nothing was changed). What has run out is gone, swept up or not.
    """

    def __init__(self, drop: Callable[[Sequence[PageId]], None], *, ttl_s: Seconds) -> None:
        if not ttl_s > 0:
            raise BugError(f"a lease of {ttl_s} s can't be used")
        self.ttl_s = ttl_s
        self.expired_total = 0
        """Leases that nobody ended: their holders died, or forgot them."""
        self._drop = drop
        self._leases: dict[LeaseId, _Lease] = {}
        self._held: dict[LeaseId, Sequence[PageId] | None] = {}
        """Leases whose pages are worked on; with their references once they have ended."""
        self._tally = PageTally()

    def __len__(self) -> int:
        """Leases that have not ended."""
        return len(self._leases)

    def __contains__(self, lease: LeaseId) -> bool:
        """Whether the lease has not ended."""
        return lease in self._leases

    @property
    def pages(self) -> PageTally:
        """Pages under leases, to look at."""
        return self._tally

    def requests(self) -> Set[RequestId]:
        """Those that have leases which have not ended."""
        return {one.request for one in self._leases.values()}

    def offer(
        self,
        lease: LeaseId,
        request: RequestId,
        attempt: int,
        references: Sequence[PageId],
        now: Seconds,
    ) -> None:
        """A new lease, held by the gateway. It owns one reference for each time a page is named.

        Raises `BugError` if the id is in use.
        """
        if lease in self._leases:
            raise BugError(f"lease {lease} is offered twice")
        self._leases[lease] = _Lease(request, attempt, references, now + self.ttl_s)
        self._tally.add(references)

    def grant(
        self, lease: LeaseId, taker: Incarnation, attempt: int, now: Seconds
    ) -> LeaseHeld | LeaseRefused:
        """The gateway lets `taker` have it for `attempt`; whoever had it before has it no more.

        An attempt that is over is refused as foreign. A repeated grant changes only the time.
        """
        one = self._living(lease, now)
        if one is None:
            return LeaseRefused(lease, LeaseRefusal.GONE)
        if attempt < one.attempt:
            return LeaseRefused(lease, LeaseRefusal.FOREIGN)
        if (one.taker, one.attempt) != (taker, attempt):
            one.taker, one.attempt, one.taken = taker, attempt, False
        return self._extend(lease, one, now)

    def take(
        self, lease: LeaseId, taker: Incarnation, attempt: int, now: Seconds
    ) -> LeaseHeld | LeaseRefused:
        """The taker begins to read, and holds the lease from now on. May be repeated."""
        one = self._living(lease, now)
        if one is None:
            return LeaseRefused(lease, LeaseRefusal.GONE)
        if not _is_granted(one, taker, attempt):
            return LeaseRefused(lease, LeaseRefusal.FOREIGN)
        one.taken = True
        return self._extend(lease, one, now)

    def renew(
        self, leases: Sequence[LeaseId], holder: Incarnation | None, now: Seconds
    ) -> Sequence[LeaseHeld | LeaseRefused]:
        """The holder (None: the gateway) still wants these; one answer each, in their order."""
        return [self._renew(lease, holder, now) for lease in leases]

    def acknowledge(
        self, lease: LeaseId, taker: Incarnation, attempt: int, now: Seconds
    ) -> LeaseHeld | LeaseRefused:
        """The one it is granted to has what it wants of it: the lease ends."""
        one = self._living(lease, now)
        if one is None:
            return LeaseRefused(lease, LeaseRefusal.GONE)
        if not _is_granted(one, taker, attempt):
            return LeaseRefused(lease, LeaseRefusal.FOREIGN)
        self._end(lease)
        return LeaseHeld(lease)

    def release(self, lease: LeaseId, now: Seconds) -> LeaseHeld | LeaseRefused:
        """The gateway knows that nobody will want it any more: the lease ends, taken or not."""
        if self._living(lease, now) is None:
            return LeaseRefused(lease, LeaseRefusal.GONE)
        self._end(lease)
        return LeaseHeld(lease)

    def release_of(self, request: RequestId, attempt: int | None = None) -> int:
        """End the leases of a request, or of one attempt of it; returns how many there were."""
        ends = [
            lease
            for lease, one in self._leases.items()
            if one.request == request and attempt in (None, one.attempt)
        ]
        for lease in ends:
            self._end(lease)
        return len(ends)

    def drop_all(self) -> None:
        """End all: their gateway is gone."""
        for lease in list(self._leases):
            self._end(lease)

    def hold(self, lease: LeaseId) -> None:
        """The owner itself works on the pages (seals them): they stay until `let_go`, whatever
        becomes of the lease."""
        if lease not in self._leases or lease in self._held:
            raise BugError(f"lease {lease} can't be held: it has ended, or is held already")
        self._held[lease] = None

    def let_go(self, lease: LeaseId) -> bool:
        """The work is done; whether the lease still lives."""
        references = self._held.pop(lease)
        if references is not None:
            self._give_back(references)
        return lease in self._leases

    def expire(self, now: Seconds) -> Sequence[LeaseId]:
        """End those whose time has run out; returns them."""
        ends = [lease for lease, one in self._leases.items() if one.expires_at <= now]
        for lease in ends:
            self._run_out(lease)
        return ends

    def next_deadline(self) -> Seconds | None:
        """When the next lease runs out if nobody renews it; None: there is none."""
        return min((one.expires_at for one in self._leases.values()), default=None)

    def _renew(
        self, lease: LeaseId, holder: Incarnation | None, now: Seconds
    ) -> LeaseHeld | LeaseRefused:
        one = self._living(lease, now)
        if one is None:
            return LeaseRefused(lease, LeaseRefusal.GONE)
        if holder != (one.taker if one.taken else None):
            return LeaseRefused(lease, LeaseRefusal.FOREIGN)
        return self._extend(lease, one, now)

    def _living(self, lease: LeaseId, now: Seconds) -> _Lease | None:
        one = self._leases.get(lease)
        if one is not None and one.expires_at <= now:
            self._run_out(lease)
            return None
        return one

    def _extend(self, lease: LeaseId, one: _Lease, now: Seconds) -> LeaseHeld:
        one.expires_at = now + self.ttl_s
        return LeaseHeld(lease)

    def _run_out(self, lease: LeaseId) -> None:
        self.expired_total += 1
        self._end(lease)

    def _end(self, lease: LeaseId) -> None:
        references = self._leases.pop(lease).references
        if lease in self._held:
            self._held[lease] = references
        else:
            self._give_back(references)

    def _give_back(self, references: Sequence[PageId]) -> None:
        self._tally.remove(references)
        self._drop(references)


def _is_granted(one: _Lease, taker: Incarnation, attempt: int) -> bool:
    return one.taker is not None and (one.taker, one.attempt) == (taker, attempt)
