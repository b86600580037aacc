"""What the book asks of a router, and the router of a fleet of one."""

from typing import Protocol

from antiphon.types import (
    FleetEvent,
    Health,
    HealthChanged,
    Hold,
    Offer,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    Route,
    Seconds,
    WorkerId,
    WorkerJoined,
)


class Routing(Protocol):
    """Chooses workers. It names only workers that have joined and are neither draining nor lost."""

    def observe(self, event: FleetEvent, now: Seconds) -> None:
        """Mutates: the fleet has changed."""
        ...

    def choose(
        self, request: Request, now: Seconds, *, whole: bool = False
    ) -> Route | Hold | Rejected:
        """Who serves it; `whole`: on one worker. A `Route` counts as load at once."""
        ...

    def in_vain(
        self, request: Request, now: Seconds, *, ahead_requests: int = 0, ahead_tokens: int = 0
    ) -> Rejected | None:
        """Why a request that nothing was delivered of should be refused now: no worker would meet
        its targets, with so many requests to be placed before it, and their prompts of so many
        tokens in all. None: it may run, or wait. What it says is no decision about a worker."""
        ...

    def choose_decode(
        self, offer: Offer, request: Request, now: Seconds
    ) -> WorkerId | Hold | Rejected:
        """Who goes on with an offer; counts as load at once. `Rejected`: nobody can use it."""
        ...

    def prefilled(self, request: RequestId, now: Seconds) -> None:
        """Mutates: its first token is there, so its prefill is no load any more."""
        ...

    def fetched(
        self, request: RequestId, missing_tokens: int, seconds: Seconds, now: Seconds
    ) -> None:
        """Mutates: what was to come from the store is there, but for `missing_tokens`."""
        ...

    def refused(self, worker: WorkerId, now: Seconds) -> None:
        """Mutates: a worker that was chosen had no room after all."""
        ...

    def settled(self, request: RequestId, now: Seconds, *, again: bool = False) -> None:
        """Mutates: forget what was chosen for it, and what it was asked for.

        `again`: another attempt follows, so what concerns all attempts is kept.
        """
        ...


class SoleWorker:
    """The router of one worker: everything runs there. Implements `Routing`."""

    def __init__(self, worker: WorkerId, hold_s: Seconds = 0.1) -> None:
        self._worker = worker
        self._hold_s = hold_s
        self._health = Health.LOST

    def observe(self, event: FleetEvent, now: Seconds) -> None:
        """See `Routing`."""
        match event:
            case WorkerJoined(info) if info.id == self._worker:
                self._health = Health.JOINED
            case HealthChanged(worker, health) if worker == self._worker:
                self._health = health
            case _:
                pass

    def choose(
        self, request: Request, now: Seconds, *, whole: bool = False
    ) -> Route | Hold | Rejected:
        """See `Routing`."""
        match self._health:
            case Health.JOINED:
                return Route(
                    request=request.id, prefill=None, decode=self._worker, reason="the only worker"
                )
            case Health.LOST:
                return Rejected(
                    request=request.id,
                    reason=RejectReason.NO_WORKER,
                    message=f"worker {self._worker} is gone",
                    attempt=request.attempt,
                )
            case Health.SUSPECT | Health.DRAINING:
                reason = f"worker {self._worker} is {self._health}"
                return Hold(request=request.id, reason=reason, ask_again_at=now + self._hold_s)

    def in_vain(
        self, request: Request, now: Seconds, *, ahead_requests: int = 0, ahead_tokens: int = 0
    ) -> Rejected | None:
        """See `Routing`. Nothing is known of how fast the worker is."""
        return None

    def choose_decode(
        self, offer: Offer, request: Request, now: Seconds
    ) -> WorkerId | Hold | Rejected:
        """See `Routing`. One worker makes no offers."""
        return Rejected(
            request=request.id, reason=RejectReason.NO_WORKER, message="there is one worker only"
        )

    def prefilled(self, request: RequestId, now: Seconds) -> None:
        """See `Routing`."""

    def fetched(
        self, request: RequestId, missing_tokens: int, seconds: Seconds, now: Seconds
    ) -> None:
        """See `Routing`."""

    def refused(self, worker: WorkerId, now: Seconds) -> None:
        """See `Routing`."""

    def settled(self, request: RequestId, now: Seconds, *, again: bool = False) -> None:
        """See `Routing`."""
