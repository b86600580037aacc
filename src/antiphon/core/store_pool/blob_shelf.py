"""Pages in which encoded blocks lie, ready to be lent: who holds which, and what goes.

place ─► written ─► held (under a lease) ─► released, or run out ─► kept while there is room
"""

from collections.abc import Collection, Hashable, Sequence
from typing import Generic, TypeVar

from antiphon.errors import BugError
from antiphon.types import LeaseId, PageId, Seconds

Name = TypeVar("Name", bound=Hashable)


class BlobShelf(Generic[Name]):
    """Mutable, pure: writes nothing. Each of `pages` is free or of one blob, always; pages of a
    blob that is held, or being written, are given to no other."""

    def __init__(self, pages: int) -> None:
        self._free = list(range(pages))
        self._blobs: dict[Name, tuple[PageId, ...]] = {}
        """Least recently used first."""
        self._holds: dict[Name, int] = {}
        self._leases: dict[LeaseId, tuple[Seconds, tuple[Name, ...]]] = {}

    @property
    def free(self) -> int:
        """Pages of no blob."""
        return len(self._free)

    def __len__(self) -> int:
        """Blobs that there are."""
        return len(self._blobs)

    def __contains__(self, name: Name) -> bool:
        return name in self._blobs

    def get(self, name: Name) -> tuple[PageId, ...] | None:
        """Where it lies; None: it does not. A use."""
        pages = self._blobs.pop(name, None)
        if pages is not None:
            self._blobs[name] = pages
        return pages

    def place(self, name: Name, count: int, now: Seconds) -> tuple[PageId, ...] | None:
        """Pages for a new blob, which is held until `written`; None: too much of what is there is
        held, and nothing goes. Takes out what was not used for longest. Mutates. Raises `BugError`
        for a blob that is there."""
        if name in self._blobs:
            raise BugError("an encoded block is placed twice")
        self.expire(now)
        idle = [old for old in self._blobs if not self._holds.get(old)]
        if len(self._free) + sum(len(self._blobs[old]) for old in idle) < count:
            return None
        for old in idle:
            if len(self._free) >= count:
                break
            self._free += self._blobs.pop(old)
        pages = tuple(self._free.pop() for _ in range(count))
        self._blobs[name] = pages
        self._holds[name] = 1
        return pages

    def written(self, name: Name) -> None:
        """What `place` began is over. Mutates."""
        self._let_go(name)

    def discard(self, name: Name) -> None:
        """It is not what it should be: nobody gets it any more. Mutates. Nobody may hold it."""
        self._free += self._blobs.pop(name, ())

    def hold(self, names: Sequence[Name], lease: LeaseId, until: Seconds) -> None:
        """These stay until then, or until `release`. Mutates. Raises `BugError` if one is not
        there, or the lease is."""
        if lease in self._leases or any(name not in self._blobs for name in names):
            raise BugError("encoded blocks that are not there, or a lease that is, can't be held")
        for name in names:
            self._holds[name] = self._holds.get(name, 0) + 1
        self._leases[lease] = until, tuple(names)

    def release(self, lease: LeaseId) -> None:
        """One that is over, or never was, is fine. Mutates."""
        _, names = self._leases.pop(lease, (0.0, ()))
        for name in names:
            self._let_go(name)

    def expire(self, now: Seconds) -> None:
        """End the leases whose time is over. Mutates."""
        for lease in [lease for lease, (until, _) in self._leases.items() if until <= now]:
            self.release(lease)

    def pages_of(self, names: Collection[Name]) -> set[PageId]:
        """For those who check it. Does not mutate."""
        return {page for name in names for page in self._blobs.get(name, ())}

    def _let_go(self, name: Name) -> None:
        left = self._holds.get(name, 0) - 1
        if left > 0:
            self._holds[name] = left
        else:
            self._holds.pop(name, None)
