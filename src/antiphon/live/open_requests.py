"""What a worker's scheduler holds, counted in sequences."""

from collections.abc import Iterator

from antiphon.types import Request, RequestId


class OpenRequests:
    """Attempts with a sequence that has neither ended nor been passed on.

    For a moment a request may have two: until it is said that the later one has ended the earlier.
    """

    def __init__(self) -> None:
        self._sequences: dict[tuple[RequestId, int], int] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._sequences)

    def __iter__(self) -> Iterator[tuple[RequestId, int]]:
        """Each request with the attempt; may be changed meanwhile."""
        return iter(tuple(self._sequences))

    def has(self, id: RequestId, attempt: int) -> bool:
        """Whether this very attempt is open."""
        return (id, attempt) in self._sequences

    def take(self, request: Request) -> None:
        """All its sequences are open, but for those that are done."""
        sequences = request.sampling.n - len(request.done)
        self._sequences[request.id, request.attempt] = sequences

    def ended(self, id: RequestId, attempt: int, sequences: int) -> None:
        """So many of the attempt's sequences are over here."""
        left = self._sequences[id, attempt] - sequences
        if left:
            self._sequences[id, attempt] = left
        else:
            del self._sequences[id, attempt]
