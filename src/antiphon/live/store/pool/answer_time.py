"""How long a peer is away with an answer, at least: the way there and back, with nothing to do."""

from collections import deque

from antiphon.types import Seconds

_LATEST = 8
"""So many answers count: the way may become a longer one."""


class AnswerTime:
    """Of one life of a peer. Answers that were encoded for count for nothing: encoding is counted
    by itself. Mutable."""

    def __init__(self) -> None:
        self._latest: deque[Seconds] = deque(maxlen=_LATEST)

    def answered(self, took_s: Seconds, encoded_blocks: int) -> None:
        """So long after it was asked for blocks it has said what it lends, having encoded so many
        of them meanwhile. Mutates."""
        if not encoded_blocks:
            self._latest.append(took_s)

    def least_s(self) -> Seconds:
        """The shortest of the latest; 0: none is known."""
        return min(self._latest, default=0.0)
