"""How fast a path is, from what came over it while it had something to carry."""

from antiphon.types import Seconds

HALF_LIFE_S: Seconds = 0.5
"""Of busy time: after so much of it, what was seen before counts half."""
FORGOTTEN_S: Seconds = 10.0
"""After so long without news a speed says nothing: the path is tried as if it were new."""


class PathSpeed:
    """A moving average: bytes over busy seconds, both fading alike.

    An average of single rates would let short slices, whose times are mostly chance, count as much
    as long ones. Mutable.
    """

    def __init__(self) -> None:
        self._bytes = 0.0
        self._seconds = 0.0
        self._busy_from: Seconds | None = None
        self._heard_at: Seconds = 0.0

    def began(self, now: Seconds) -> None:
        """Something is asked for. Mutates."""
        if self._busy_from is None:
            self._busy_from = now

    def came(self, size: int, now: Seconds, *, busy: bool) -> None:
        """So many bytes came; `busy`: more is on its way. Mutates."""
        if self._busy_from is None:
            return
        seconds = max(0.0, now - self._busy_from)
        fade = 0.5 ** (seconds / HALF_LIFE_S)
        self._bytes = self._bytes * fade + size
        self._seconds = self._seconds * fade + seconds
        self._heard_at = now
        self._busy_from = now if busy else None

    def stopped(self) -> None:
        """Nothing more will come of what was asked for. Mutates."""
        self._busy_from = None

    def bytes_per_s(self, now: Seconds) -> float | None:
        """The speed; None: nothing is known, or not any more. Does not mutate."""
        if self._seconds <= 0.0 or now - self._heard_at > FORGOTTEN_S:
            return None
        return self._bytes / self._seconds
