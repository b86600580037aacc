"""Which request's time is up next."""

from heapq import heapify, heappop, heappush

from antiphon.types import RequestId, Seconds


class Deadlines:
    """Deadlines of the requests that are open, in the order (deadline, id).

    A heap with lazy removal: what was removed stays in it until it surfaces, or until it outweighs
    the rest, so memory follows the number of open requests and every call is O(log n) amortised.
    """

    def __init__(self) -> None:
        self._open: dict[RequestId, Seconds] = {}
        self._heap: list[tuple[Seconds, RequestId]] = []

    def add(self, request: RequestId, deadline: Seconds) -> None:
        """Mutates. A request has one deadline for life."""
        self._open[request] = deadline
        heappush(self._heap, (deadline, request))

    def remove(self, request: RequestId) -> None:
        """Mutates; no effect on a request without a deadline."""
        self._open.pop(request, None)
        if len(self._heap) > 2 * len(self._open) + 64:
            self._heap = [(deadline, name) for name, deadline in self._open.items()]
            heapify(self._heap)

    def next(self) -> Seconds | None:
        """The earliest deadline, or None. Forgets removed entries on the way."""
        while self._heap and self._open.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: Seconds) -> list[RequestId]:
        """Mutates: takes out all whose deadline is at or before `now`, earliest first."""
        due: list[RequestId] = []
        while (earliest := self.next()) is not None and earliest <= now:
            _, request = heappop(self._heap)
            del self._open[request]
            due.append(request)
        return due
