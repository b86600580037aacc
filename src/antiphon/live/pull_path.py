"""How KV of other workers reaches this one: their leases, and the copying of their pages."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from antiphon.core.handover import Owner
from antiphon.store.transfer import Miss
from antiphon.types import (
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    LinkUse,
    OfferedPage,
    PageId,
    Pull,
    RequestId,
)


class SealedPages(Protocol):
    """A worker's pages as others may read them (`store.transfer.OwnedRegion` is one)."""

    def seal(self, pages: Sequence[PageId]) -> tuple[OfferedPage, ...]:
        """The pages are complete: nobody writes them before they are reassigned. In their order.

        Takes time, without the interpreter lock.
        """
        ...


@dataclass(frozen=True, slots=True)
class Copied:
    """Which pages of a pull are now what was offered, and why the others are not."""

    good: tuple[bool, ...]
    problem: str = ""


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

    async def copy(self, pull: Pull) -> Copied:
        """Copy the pages, off the event loop.

        When this returns, by an exception too, nothing is written any more. Do not cancel.
        """
        ...

    def stop(self, request: RequestId, attempt: int) -> None:
        """Nobody wants what is copied for this attempt: end soon, if that is easy."""
        ...

    def links(self) -> tuple[LinkUse, ...]:
        """From whom how much has come, and over what."""
        ...


def why_missed(missed: Counter[Miss]) -> str:
    """How many pages were not what was offered, by reason; empty if all were."""
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(missed.items()))
    return counts and f"pages were not what was offered: {counts}"
