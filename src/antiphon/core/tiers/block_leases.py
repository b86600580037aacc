"""Who reads which blocks of the host tier, and until when."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.errors import BugError
from antiphon.types import LeaseId, Seconds

from .held_block import HeldBlock


@dataclass(frozen=True, slots=True, eq=False)
class _Lease:
    holder: str
    blocks: tuple[HeldBlock, ...]


class BlockLeases:
    """Leases that all live equally long, so that they run out in the order of their making.

    Whoever ends one gets its blocks, exactly once. All calls are O(1) a lease.
    """

    def __init__(self, *, ttl_s: Seconds) -> None:
        if not ttl_s > 0:
            raise BugError(f"a lease of {ttl_s} s can't be used")
        self.ttl_s = ttl_s
        self._leases: dict[LeaseId, _Lease] = {}
        self._deadlines: OrderedDict[LeaseId, Seconds] = OrderedDict()
        self._of_holder: dict[str, dict[LeaseId, None]] = {}

    def __len__(self) -> int:
        """Leases that have not ended."""
        return len(self._leases)

    def open(
        self, lease: LeaseId, holder: str, blocks: tuple[HeldBlock, ...], now: Seconds | None
    ) -> None:
        """A new lease, counted from `now` (None: it never runs out). `BugError`: the id is used."""
        if lease in self._leases:
            raise BugError(f"lease {lease} is opened twice")
        self._leases[lease] = _Lease(holder, blocks)
        self._of_holder.setdefault(holder, {})[lease] = None
        if now is not None:
            self._deadlines[lease] = now + self.ttl_s

    def close(self, lease: LeaseId) -> tuple[HeldBlock, ...] | None:
        """End it; returns its blocks, or None if there is no such lease."""
        one = self._leases.pop(lease, None)
        if one is None:
            return None
        self._deadlines.pop(lease, None)
        others = self._of_holder[one.holder]
        del others[lease]
        if not others:
            del self._of_holder[one.holder]
        return one.blocks

    def of(self, holder: str) -> Sequence[LeaseId]:
        """The leases of a holder, oldest first."""
        return list(self._of_holder.get(holder, ()))

    def due(self, now: Seconds) -> Sequence[LeaseId]:
        """Those whose time has run out, earliest first. Does not end them."""
        due: list[LeaseId] = []
        for lease, deadline in self._deadlines.items():
            if deadline > now:
                break
            due.append(lease)
        return due

    def next_deadline(self) -> Seconds | None:
        """When the next lease runs out; None: none does."""
        return next(iter(self._deadlines.values()), None)
