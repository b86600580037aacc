"""All requests that are not settled, and the ways in which they end."""

from collections.abc import Iterator

from antiphon.core.deadlines import Deadlines
from antiphon.types import (
    Command,
    FinishReason,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    RequestRecord,
    Seconds,
    Settle,
)

from .dispatcher import Dispatcher
from .held_requests import FairShares, HeldRequests
from .open_request import OpenRequest


class OpenRequests:
    """Forgets a request the moment it settles: nothing else here outlives it."""

    def __init__(self, dispatcher: Dispatcher, kind: type[OpenRequest], shares: FairShares) -> None:
        self.for_decode = HeldRequests(shares)
        """Those with an offer wait for a worker here, in turns of their own."""
        self.for_route = HeldRequests(shares)
        """All others that no worker has wait here."""
        self.deadlines = Deadlines()
        self.stirred = False
        """Something has happened that may let a held request run."""
        self._dispatcher = dispatcher
        self._kind = kind
        self._open: dict[RequestId, OpenRequest] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenRequest]:
        """In the order of arrival, as it is now: they may end on the way."""
        return iter(tuple(self._open.values()))

    def get(self, id: RequestId) -> OpenRequest | None:
        """None: it is settled, or never came."""
        return self._open.get(id)

    def add(self, request: Request, now: Seconds) -> OpenRequest:
        """Mutates: a request, whose id must not be open, waits for what is done with it."""
        self._arrivals += 1
        entry = self._open[request.id] = self._kind(request, self._arrivals, now)
        if request.deadline is not None:
            self.deadlines.add(request.id, request.deadline)
        return entry

    def queue(self, entry: OpenRequest) -> HeldRequests:
        """Where it has to wait when no worker has it."""
        return self.for_route if entry.offer is None else self.for_decode

    # ── ends: all of these mutate ────────────────────────────────────────────────────────────

    def abort(
        self, entry: OpenRequest, reason: FinishReason, message: str, now: Seconds
    ) -> list[Command]:
        """End the request, also where it runs."""
        return [*self._dispatcher.stop(entry), *self.end(entry, reason, message, now)]

    def end(
        self,
        entry: OpenRequest,
        reason: FinishReason,
        message: str,
        now: Seconds,
        rejected: Rejected | None = None,
    ) -> list[Command]:
        """End all that is left of a request that no worker has."""
        ends = [entry.end(sequence, reason, message) for sequence in entry.open_sequences()]
        return [*ends, *self._close(entry, entry.record(now), now, rejected)]

    def refuse(self, entry: OpenRequest, rejected: Rejected, now: Seconds) -> list[Command]:
        """Nobody serves it: with no ends if nothing came of it so far, else with errors."""
        if not entry.untouched:
            late = rejected.reason is RejectReason.DEADLINE
            reason = FinishReason.DEADLINE if late else FinishReason.ERROR
            return self.end(entry, reason, rejected.message, now, rejected)
        return self._close(entry, entry.refused_record(rejected.message, now), now, rejected)

    def settle_if_over(self, entry: OpenRequest, now: Seconds) -> list[Command]:
        """Settle it if it has no open sequence."""
        if entry.open_sequences():
            return []
        return self._close(entry, entry.record(now), now)

    def _close(
        self,
        entry: OpenRequest,
        record: RequestRecord,
        now: Seconds,
        rejected: Rejected | None = None,
    ) -> list[Command]:
        self.queue(entry).remove(entry.id)
        self.for_route.over(record)
        self.for_decode.over(record)
        self.stirred |= entry.was_routed
        released = self._dispatcher.give_up_offer(entry)
        self._dispatcher.forget(entry.id, now)
        self.deadlines.remove(entry.id)
        del self._open[entry.id]
        return [*released, Settle(record, rejected)]
