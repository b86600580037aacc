"""Which attempt of each request came to a worker last: what it is told of any other is late."""

from collections.abc import Sequence

from antiphon.core.scheduler import Scheduler
from antiphon.types import RequestId

_KEPT = 64
"""So many that have ended are remembered, and no more than are open: an abort of theirs is heard,
in vain."""


class KnownAttempts:
    """Of one life. Bounded by what its scheduler has, however long it lives."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._last: dict[RequestId, int] = {}
        self._most = _KEPT

    def came(self, request: RequestId, attempt: int) -> None:
        """The scheduler has taken it. Mutates."""
        self._last[request] = attempt
        if len(self._last) > self._most:
            self._forget_ended()

    def is_last(self, request: RequestId, attempt: int) -> bool:
        """Was this the last that came?"""
        return self._last.get(request) == attempt

    def take_all(self) -> Sequence[tuple[RequestId, int]]:
        """All that may be here. Mutates: none is from now on."""
        last, self._last = self._last, {}
        return tuple(last.items())

    def _forget_ended(self) -> None:
        has, offered = self._scheduler.has, self._scheduler.leases.requests()
        self._last = {id: n for id, n in self._last.items() if id in offered or has(id, n)}
        self._most = 2 * len(self._last) + _KEPT
