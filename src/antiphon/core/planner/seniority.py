"""Since when workers cost and serve, as whoever looks at them again and again can tell."""

from collections.abc import Collection
from typing import NamedTuple

from antiphon.types import Role, Seconds, WorkerId

from .present_worker import PresentWorker


class _Serves(NamedTuple):
    """Since when a worker serves in that role, in this life."""

    life: str
    role: Role
    since: Seconds


class Seniority:
    """Remembers when each worker was first seen, and first seen to serve as it does."""

    def __init__(self) -> None:
        self._since: dict[WorkerId, Seconds] = {}
        self._serves: dict[WorkerId, _Serves] = {}

    def since(self, id: WorkerId, now: Seconds) -> Seconds:
        """From when on it costs. Mutates: from now on, if it was never seen."""
        return self._since.setdefault(id, now)

    def serves_since(self, id: WorkerId, one: PresentWorker, now: Seconds) -> Seconds:
        """From when on it serves in its role, in its life; now, if it does not. Mutates."""
        if one.view is None:
            return now
        before = self._serves.get(id)
        if before is None or (before.life, before.role) != (one.life, one.role):
            before = self._serves[id] = _Serves(one.life, one.role, now)
        return before.since

    def keep(self, ids: Collection[WorkerId]) -> None:
        """Forget all others. Mutates."""
        for known in (self._since, self._serves):
            for id in known.keys() - ids:
                del known[id]
