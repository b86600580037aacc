"""What a worker's scheduler holds, counted in sequences."""

from collections.abc import Iterator
from dataclasses import dataclass

from antiphon.types import Request, RequestId


@dataclass(slots=True)
class _Open:
    attempt: int
    sequences: int


class OpenRequests:
    """Requests with a sequence that has neither ended nor been passed on."""

    def __init__(self) -> None:
        self._requests: dict[RequestId, _Open] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._requests)

    def __contains__(self, id: RequestId) -> bool:
        """Whether an attempt of the request is open."""
        return id in self._requests

    def __iter__(self) -> Iterator[tuple[RequestId, int]]:
        """Each with its attempt; may be changed meanwhile."""
        return iter([(id, one.attempt) for id, one in self._requests.items()])

    def has(self, id: RequestId, attempt: int) -> bool:
        """Whether this very attempt is open."""
        one = self._requests.get(id)
        return one is not None and one.attempt == attempt

    def take(self, request: Request) -> None:
        """All its sequences are open, but for those that are done."""
        sequences = request.sampling.n - len(request.done)
        self._requests[request.id] = _Open(request.attempt, sequences)

    def ended(self, id: RequestId, sequences: int) -> None:
        """So many of its sequences are over here."""
        one = self._requests[id]
        one.sequences -= sequences
        if not one.sequences:
            del self._requests[id]
