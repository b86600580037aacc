"""How fast a peer sends: bytes over the time in which something was on its way, no other."""

import asyncio
from collections.abc import Callable, Sequence

from antiphon.core.transfer import PathSpeed
from antiphon.store.transfer.tcp import PageClient
from antiphon.types import PagePull, Seconds

_OLD_S: Seconds = 60.0
"""After so long without a pull the peer may be much faster than it was."""


class PullSpeed:
    """Of one life of a peer, over all its pulls. Of one event loop."""

    def __init__(self, clock: Callable[[], Seconds]) -> None:
        self.clock = clock
        self._speed = PathSpeed()
        self._last_bytes_per_s: float | None = None
        self._pulls = 0
        self._pulled_at: Seconds = clock()

    def bytes_per_s(self) -> float | None:
        """As it was measured last; None: nothing has come yet."""
        return self._speed.bytes_per_s(self.clock()) or self._last_bytes_per_s

    def is_old(self) -> bool:
        """Whether that was long ago."""
        return not self._pulls and self.clock() - self._pulled_at > _OLD_S

    def began(self, at: Seconds) -> None:
        """A pull asked for its first byte."""
        self._speed.began(at)
        self._pulls += 1

    def ended(self, size_bytes: int, at: Seconds) -> None:
        """It brought so much, and brings no more."""
        self._pulls -= 1
        self._pulled_at = at
        self._speed.came(size_bytes, at, busy=self._pulls > 0)
        self._last_bytes_per_s = self._speed.bytes_per_s(at) or self._last_bytes_per_s


class Moving:
    """What one call to a peer has moved, and in how long, over pulls one after another or at the
    same time. `seconds`: from the first byte asked to the last. Made on the event loop that counts.
    """

    def __init__(self, speed: PullSpeed) -> None:
        self.size_bytes = 0
        self.seconds: Seconds = 0.0
        self._speed = speed
        self._loop = asyncio.get_running_loop()
        self._began: Seconds | None = None

    def pull(
        self, client: PageClient, pulls: Sequence[PagePull], timeout_s: Seconds, page_bytes: int
    ) -> Sequence[bool]:
        """`PageClient.pull`, timed, on a thread: what waits for one moves nothing, nor does one
        that decodes. Bytes of good pages count, whether their block was whole or not."""
        good: Sequence[bool] = ()
        self._loop.call_soon_threadsafe(self._begins, self._speed.clock())
        try:
            good = client.pull(pulls, timeout_s)
        finally:
            size_bytes = sum(good) * page_bytes
            self._loop.call_soon_threadsafe(self._ends, size_bytes, self._speed.clock())
        return good

    def _begins(self, at: Seconds) -> None:
        self._speed.began(at)
        self._began = at if self._began is None else min(at, self._began)

    def _ends(self, size_bytes: int, at: Seconds) -> None:
        self._speed.ended(size_bytes, at)
        self.size_bytes += size_bytes
        assert self._began is not None
        self.seconds = max(self.seconds, at - self._began)
