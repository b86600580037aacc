"""What the recent past says about the near future: output lengths, and the rate of endings."""

from bisect import bisect_right, insort
from collections import deque

from antiphon.types import Seconds

UNKNOWN_TOKENS = 512
"""Predicted length while no finished sequence was longer."""
_RATE_WINDOW = 64
_RETRY_MIN_S = 1.0
_RETRY_MAX_S = 60.0


class History:
    """Lengths of the last finished sequences, and when the last requests ended."""

    def __init__(self, *, size: int, quantile: float) -> None:
        self._recent: deque[int] = deque(maxlen=size)
        self._sorted: list[int] = []
        self._quantile = quantile
        self._ends: deque[Seconds] = deque(maxlen=_RATE_WINDOW)

    def finished(self, length: int) -> None:
        """A sequence ended by itself after `length` output tokens."""
        if len(self._recent) == self._recent.maxlen:
            oldest = self._recent.popleft()
            del self._sorted[bisect_right(self._sorted, oldest) - 1]
        self._recent.append(length)
        insort(self._sorted, length)

    def request_ended(self, now: Seconds) -> None:
        """A request left, for whatever reason."""
        self._ends.append(now)

    def predict(self, generated: int, cap: int) -> int:
        """Output length of a sequence that has `generated` tokens: in generated + 1 … cap.

        A quantile of the finished lengths above `generated` (Past-Future scheduler, ASPLOS 2025,
        with a fixed quantile in place of draws). Where none is longer it is expected to live as
        long again, and `UNKNOWN_TOKENS` at least.
        """
        longer = bisect_right(self._sorted, generated)
        count = len(self._sorted) - longer
        if count:
            length = self._sorted[longer + min(count - 1, int(self._quantile * count))]
        else:
            length = max(2 * generated, UNKNOWN_TOKENS)
        return max(generated + 1, min(length, cap))

    def retry_after_s(self, now: Seconds) -> Seconds:
        """When a full queue may have room: the recent mean time between endings, 1 to 60 s."""
        if len(self._ends) < 2:
            return _RETRY_MIN_S
        gap = (now - self._ends[0]) / len(self._ends)
        return min(_RETRY_MAX_S, max(_RETRY_MIN_S, gap))
