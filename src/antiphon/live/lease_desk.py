"""The leases of a worker, for those who ask from outside: its gateway, and takers."""

from collections.abc import Callable, Sequence

from antiphon.core.handover import LeaseBook
from antiphon.types import (
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    RequestId,
    Seconds,
)


class LeaseDesk:
    """Implements `peer_port.TakenLeases`. `on_end` is called when pages may have come free.

    Nothing here waits.
    """

    def __init__(
        self, leases: LeaseBook, clock: Callable[[], Seconds], on_end: Callable[[], None]
    ) -> None:
        self._leases = leases
        self._clock = clock
        self._on_end = on_end

    def take(self, lease: LeaseId, taker: Incarnation, attempt: int) -> LeaseHeld | LeaseRefused:
        """See `TakenLeases`."""
        return self._leases.take(lease, taker, attempt, self._clock())

    def renew_taken(
        self, leases: Sequence[LeaseId], taker: Incarnation
    ) -> Sequence[LeaseHeld | LeaseRefused]:
        """See `TakenLeases`."""
        return self._leases.renew(tuple(leases), taker, self._clock())

    def acknowledge(
        self, lease: LeaseId, taker: Incarnation, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        """See `TakenLeases`."""
        answer = self._leases.acknowledge(lease, taker, attempt, self._clock())
        self._on_end()
        return answer

    def grant(self, lease: LeaseId, taker: Incarnation, attempt: int) -> LeaseHeld | LeaseRefused:
        """See `WorkerLink`."""
        return self._leases.grant(lease, taker, attempt, self._clock())

    def renew(self, leases: Sequence[LeaseId]) -> None:
        """See `WorkerLink`."""
        self._leases.renew(tuple(leases), None, self._clock())

    def release(self, lease: LeaseId) -> None:
        """See `WorkerLink`."""
        self._leases.release(lease, self._clock())
        self._on_end()

    def release_of(self, request: RequestId, attempt: int) -> bool:
        """End what is offered of this attempt of a request; whether there was anything."""
        ended = self._leases.release_of(request, attempt)
        self._on_end()
        return ended > 0

    def drop_all(self) -> None:
        """End all: nobody is there who could want them."""
        self._leases.drop_all()
        self._on_end()
