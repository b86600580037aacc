"""Requests that wait for a worker, in the order in which they are to have one."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

from antiphon.types import Request, RequestId, Seconds

Rank = tuple[int, Seconds, int]


@dataclass(slots=True)
class _Held:
    rank: Rank
    not_before: Seconds
    ask_at: Seconds


class HeldRequests:
    """A queue in the order (priority, deadline, arrival).

    `wake_at` is when somebody in it must be asked for again, at the latest. Those who were never
    asked for, since others wait before them, have no time of their own: one of the others has.
    """

    def __init__(self) -> None:
        self._order: list[tuple[Rank, RequestId]] = []
        self._held: dict[RequestId, _Held] = {}
        self._wake_at: Seconds | None = None

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, id: object) -> bool:
        return id in self._held

    @property
    def wake_at(self) -> Seconds | None:
        """None: nobody waits."""
        return self._wake_at if self._held else None

    def put(self, request: Request, arrival: int, not_before: Seconds | None = None) -> None:
        """Mutates: `request`, which must not be here, waits, and is not asked for earlier.

        Without `not_before` the caller asks for it now if it is next.
        """
        deadline = float("inf") if request.deadline is None else request.deadline
        rank = (request.priority, deadline, arrival)
        earliest = float("-inf") if not_before is None else not_before
        self._held[request.id] = _Held(rank, earliest, earliest)
        insort(self._order, (rank, request.id))
        if not_before is not None:
            self._wake(not_before)

    def remove(self, id: RequestId) -> None:
        """Mutates; no effect on who is not here."""
        held = self._held.pop(id, None)
        if held is not None:
            del self._order[bisect_left(self._order, (held.rank, id))]

    def hold(self, id: RequestId, ask_at: Seconds) -> None:
        """Mutates: it was asked for in vain; the answer may change by itself at `ask_at`."""
        self._held[id].ask_at = ask_at
        self._wake(ask_at)

    def is_next(self, id: RequestId, now: Seconds) -> bool:
        """Does nobody wait before it who may be asked for now?"""
        return next(self.ready(now), None) == id

    def ready(self, now: Seconds) -> Iterator[RequestId]:
        """Who may be asked for now, in order. Not valid after the next change."""
        return (id for _, id in self._order if self._held[id].not_before <= now)

    def asked(self, now: Seconds) -> None:
        """Mutates: the first ones were asked for just now, and all who can have a worker left."""
        later = (held.ask_at for held in self._held.values() if held.ask_at > now)
        self._wake_at = min(later, default=None)

    def _wake(self, at: Seconds) -> None:
        self._wake_at = at if self._wake_at is None else min(self._wake_at, at)
