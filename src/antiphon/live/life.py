"""What a worker has taken from its gateway in one life, and must end when the life is over."""

from collections.abc import Sequence

from antiphon.types import (
    AttemptFailed,
    Event,
    Offer,
    Request,
    RequestId,
    SequenceEnded,
)


class _Run:
    """A request that was handed over, and how many of its sequences have not ended here."""

    __slots__ = ("attempt", "open")

    def __init__(self, request: Request) -> None:
        self.attempt = request.attempt
        self.open = request.sampling.n - len(request.done)


class Life:
    """Requests that run, seen from messages and events alone. An offer ends its request here."""

    def __init__(self) -> None:
        self._runs: dict[RequestId, _Run] = {}

    @property
    def runs(self) -> list[tuple[RequestId, int]]:
        """Each request that is not over here, with its attempt."""
        return [(id, run.attempt) for id, run in self._runs.items()]

    def taking(self, request: Request) -> "_Run | None":
        """The request is about to be handed over; mutates. Returns what `not_taken` needs."""
        before = self._runs.get(request.id)
        self._runs[request.id] = _Run(request)
        return before

    def not_taken(self, request: Request, before: "_Run | None") -> None:
        """It was refused: mutates back."""
        if before is None:
            self._runs.pop(request.id, None)
        else:
            self._runs[request.id] = before

    def aborted(self, id: RequestId, attempt: int, sequences: int) -> None:
        """So many sequences ended by an abort; mutates."""
        run = self._runs.get(id)
        if run is not None and run.attempt == attempt:
            self._ended(id, run, sequences)

    def own(self, events: Sequence[Event]) -> list[Event]:
        """Those of the events that belong to what was taken in this life; mutates."""
        kept: list[Event] = []
        for event in events:
            run = self._runs.get(event.request)
            if run is None or run.attempt != event.attempt:
                continue
            kept.append(event)
            if type(event) is SequenceEnded:
                self._ended(event.request, run, 1)
            elif type(event) in (Offer, AttemptFailed):
                del self._runs[event.request]
        return kept

    def _ended(self, id: RequestId, run: _Run, sequences: int) -> None:
        run.open -= sequences
        if run.open <= 0:
            del self._runs[id]
