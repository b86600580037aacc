"""A router that chooses by preference, so that the explorer can try all choices."""

from antiphon.types import (
    FleetEvent,
    Health,
    HealthChanged,
    Hold,
    Offer,
    Rejected,
    Request,
    RequestId,
    Role,
    Route,
    Seconds,
    WorkerId,
    WorkerJoined,
)

ASK_AGAIN_S: Seconds = 3.0


class ChosenRouter:
    """Implements `core.requests.Routing`. Prefers by (which prefill, which decode) worker."""

    def __init__(self, preferences: dict[RequestId, tuple[int, int]]) -> None:
        self._preferences = preferences
        self._alive: dict[Role, list[WorkerId]] = {Role.PREFILL: [], Role.DECODE: []}

    def observe(self, event: FleetEvent, now: Seconds) -> None:
        """See `core.requests.Routing`."""
        match event:
            case WorkerJoined(info):
                self._alive[info.role].append(info.id)
            case HealthChanged(worker, Health.LOST):
                for alive in self._alive.values():
                    if worker in alive:
                        alive.remove(worker)
            case _:
                pass

    def _best(self, role: Role, request: RequestId) -> WorkerId | None:
        alive = self._alive[role]
        wanted = self._preferences[request][role is Role.DECODE]
        return alive[wanted % len(alive)] if alive else None

    def in_vain(
        self, request: Request, now: Seconds, *, ahead_requests: int = 0, ahead_tokens: int = 0
    ) -> Rejected | None:
        """See `core.requests.Routing`."""
        return None

    def choose(
        self, request: Request, now: Seconds, *, whole: bool = False
    ) -> Route | Hold | Rejected:
        """See `core.requests.Routing`."""
        prefill = self._best(Role.PREFILL, request.id)
        decode = self._best(Role.DECODE, request.id)
        if prefill is None and decode is None:
            return Hold(
                request=request.id, reason="nobody is there", ask_again_at=now + ASK_AGAIN_S
            )
        if prefill is None or decode is None:
            alone = prefill or decode
            assert alone is not None
            return Route(request=request.id, prefill=None, decode=alone, reason="alone")
        if whole:
            return Route(request=request.id, prefill=None, decode=decode, reason="whole")
        return Route(request=request.id, prefill=prefill, decode=decode, reason="apart")

    def choose_decode(
        self, offer: Offer, request: Request, now: Seconds
    ) -> WorkerId | Hold | Rejected:
        """See `core.requests.Routing`."""
        decode = self._best(Role.DECODE, request.id)
        if decode is not None:
            return decode
        if offer.owner in self._alive[Role.PREFILL]:
            return offer.owner
        return Hold(request=request.id, reason="nobody is there", ask_again_at=now + ASK_AGAIN_S)

    def prefilled(self, request: RequestId, now: Seconds) -> None:
        """See `core.requests.Routing`."""

    def fetched(
        self, request: RequestId, missing_tokens: int, seconds: Seconds, now: Seconds
    ) -> None:
        """See `core.requests.Routing`."""

    def refused(self, worker: WorkerId, now: Seconds) -> None:
        """See `core.requests.Routing`."""

    def settled(self, request: RequestId, now: Seconds, *, again: bool = False) -> None:
        """See `core.requests.Routing`."""
