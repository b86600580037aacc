"""How KV of other workers reaches this one: their leases, and the copying of their pages."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from antiphon.core.handover import Owner
from antiphon.errors import PeerError
from antiphon.types import (
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    OfferedPage,
    PageId,
    Pull,
)

from .peer_port import TakenLeases


class SealedPages(Protocol):
    """A worker's pages as others may read them (`store.transfer.OwnedRegion` is one)."""

    def seal(self, pages: Sequence[PageId]) -> tuple[OfferedPage, ...]:
        """The pages are complete: nobody writes them before they are reassigned. In their order.

        Takes time, without the interpreter lock.
        """
        ...


class PullPath(Protocol):
    """Calls to the owners of offers. Each ends in time; `PeerError`: the owner can't be asked."""

    async def take(self, owner: Owner, lease: LeaseId, attempt: int) -> LeaseHeld | LeaseRefused:
        """Begin to read."""
        ...

    async def renew(
        self, owner: Owner, leases: Sequence[LeaseId]
    ) -> Sequence[LeaseHeld | LeaseRefused]:
        """These are still read; one answer each, in any order."""
        ...

    async def acknowledge(
        self, owner: Owner, lease: LeaseId, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        """What is wanted of it has been read."""
        ...

    async def copy(self, pull: Pull) -> tuple[bool, ...]:
        """Copy the pages, off the event loop; which of them are now what was offered.

        When this returns, by an exception too, nothing is written any more. Do not cancel.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What a worker needs to give its KV to others, and to take theirs."""

    pages: SealedPages
    path: PullPath


class LocalPullPath:
    """Owners in the same process, by incarnation; whoever is not in `owners` is gone.

    `copy_pages` does the copying, on a thread of `threads`.
    """

    def __init__(
        self,
        taker: Callable[[], Incarnation],
        owners: Mapping[Incarnation, TakenLeases],
        copy_pages: Callable[[Pull], tuple[bool, ...]],
        threads: Executor,
    ) -> None:
        self._taker = taker
        self._owners = owners
        self._copy_pages = copy_pages
        self._threads = threads

    async def take(self, owner: Owner, lease: LeaseId, attempt: int) -> LeaseHeld | LeaseRefused:
        """See `PullPath`."""
        return self._of(owner).take(lease, self._taker(), attempt)

    async def renew(
        self, owner: Owner, leases: Sequence[LeaseId]
    ) -> Sequence[LeaseHeld | LeaseRefused]:
        """See `PullPath`."""
        return self._of(owner).renew_taken(leases, self._taker())

    async def acknowledge(
        self, owner: Owner, lease: LeaseId, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        """See `PullPath`."""
        return self._of(owner).acknowledge(lease, self._taker(), attempt)

    async def copy(self, pull: Pull) -> tuple[bool, ...]:
        """See `PullPath`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._copy_pages, pull)

    def _of(self, owner: Owner) -> TakenLeases:
        leases = self._owners.get(owner.incarnation)
        if leases is None:
            raise PeerError(f"owner {owner.worker} is gone")
        return leases
