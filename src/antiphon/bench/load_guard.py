"""Whether the measuring tool was the bottleneck."""

import asyncio
import time
from array import array

from antiphon.core.goodput import percentile
from antiphon.types import Seconds

LATE_S: Seconds = 0.01
"""A client whose calls go out later than this, or whose loop answers later, fell behind (p99)."""
BUSY = 0.8
"""A client that uses more of a core than this has none to spare for a burst."""
_TICK_S: Seconds = 0.05


class LoadGuard:
    """Collects how late the client was, and how busy, while it is in `with`."""

    def __init__(self) -> None:
        self._lateness = array("d")
        self._lags = array("d")
        self._cpu_s = self._wall_s = 0.0
        self._ticker: asyncio.TimerHandle | None = None

    def __enter__(self) -> "LoadGuard":
        self._cpu_s, self._wall_s = -time.process_time(), -time.monotonic()
        self._tick(time.monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        self._cpu_s += time.process_time()
        self._wall_s += time.monotonic()
        if self._ticker is not None:
            self._ticker.cancel()

    def sent(self, late_s: Seconds) -> None:
        """Mutates: a call went out so long after it was due."""
        self._lateness.append(max(0.0, late_s))

    def _tick(self, due_at: Seconds) -> None:
        """Look at the clock at even intervals: what is late is the loop's lag."""
        now = time.monotonic()
        self._lags.append(max(0.0, now - due_at))
        loop = asyncio.get_running_loop()
        self._ticker = loop.call_later(_TICK_S, self._tick, now + _TICK_S)

    @property
    def lateness_p99_s(self) -> Seconds:
        """Of the calls, how long after their time they were sent."""
        return _p99(self._lateness)

    @property
    def lag_p99_s(self) -> Seconds:
        """How long something that was due in the event loop waited for its turn."""
        return _p99(self._lags)

    @property
    def busy(self) -> float:
        """The share of a core that this process used, once it is over."""
        return self._cpu_s / self._wall_s if self._wall_s > 0 else 0.0

    def notes(self) -> tuple[str, ...]:
        """What a reader should know before believing the numbers; nothing if all was well."""
        found: list[str] = []
        if self.lateness_p99_s > LATE_S:
            found.append(_late_note("calls went out", self.lateness_p99_s))
        if self.lag_p99_s > LATE_S:
            found.append(_late_note("the client's event loop ran", self.lag_p99_s))
        if self.busy > BUSY:
            found.append(
                f"The client used {self.busy:.0%} of a core (above {BUSY:.0%} it may fall behind): "
                "latencies may be the client's own."
            )
        return tuple(found)


def _late_note(what: str, late_s: Seconds) -> str:
    return (
        f"The client fell behind: {what} {late_s * 1e3:.0f} ms late at the 99th percentile "
        f"(above {LATE_S * 1e3:.0f} ms): latencies may be the client's own. "
        "Give it a core of its own, or less load."
    )


def _p99(values: "array[float]") -> Seconds:
    return percentile(sorted(values), 0.99) if values else 0.0
