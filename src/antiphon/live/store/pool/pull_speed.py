"""How fast a peer sends: bytes over the time in which something was on its way, no other."""

from collections.abc import Callable

from antiphon.core.transfer import PathSpeed
from antiphon.types import Seconds


class PullSpeed:
    """Of one life of a peer, over all its pulls. Of one event loop."""

    def __init__(self, clock: Callable[[], Seconds]) -> None:
        self.clock = clock
        self._speed = PathSpeed()
        self._last_bytes_per_s: float | None = None
        self._pulls = 0

    def bytes_per_s(self) -> float | None:
        """As it was measured last; None: nothing has come yet."""
        return self._speed.bytes_per_s(self.clock()) or self._last_bytes_per_s

    def began(self) -> None:
        """A pull asks for its first byte."""
        self._speed.began(self.clock())
        self._pulls += 1

    def ended(self, size_bytes: int) -> None:
        """It brought so much, and will bring no more."""
        now = self.clock()
        self._pulls -= 1
        self._speed.came(size_bytes, now, busy=self._pulls > 0)
        self._last_bytes_per_s = self._speed.bytes_per_s(now) or self._last_bytes_per_s


class Moving:
    """What one call to a peer has moved, and in how long: `began` and `ended` by turns, or, for
    pulls beside one another, each as often. `seconds`: from the first byte asked to the last."""

    def __init__(self, speed: PullSpeed) -> None:
        self.size_bytes = 0
        self.seconds: Seconds = 0.0
        self._speed = speed
        self._began: Seconds | None = None

    def began(self) -> None:
        """See `PullSpeed`."""
        self._speed.began()
        if self._began is None:
            self._began = self._speed.clock()

    def ended(self, size_bytes: int) -> None:
        """See `PullSpeed`. Bytes of good pages count, whether their block was whole or not."""
        self._speed.ended(size_bytes)
        self.size_bytes += size_bytes
        if self._began is not None:
            self.seconds = self._speed.clock() - self._began
