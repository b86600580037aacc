"""How far a load is, and how it goes so far: for whoever looks on."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from antiphon.core.goodput import percentile, ttft_s
from antiphon.types import CallError, CallRecord, Seconds

_RECENT = 500
"""Percentiles are of so many calls: the last ones say how it goes now, and cost little to sort."""
_NEVER_SENT = (CallError.ABANDONED, CallError.UNSENT)
_TERMINAL_S, _LINES_S = 0.5, 10.0
"""How often a terminal is redrawn, and a line written where there is none."""


class LoadTally:
    """Counts a run as far as it has come.

    `meets` says whether a call that ended met its targets; calls due before `warmup_s` are not
    asked about. `duration_s` is that of the load, without the wait for its last answers. Times that
    are handed in are on one clock, whichever.
    """

    def __init__(
        self, meets: Callable[[CallRecord], bool], *, duration_s: Seconds, warmup_s: Seconds
    ) -> None:
        self._meets = meets
        self._duration_s = duration_s
        self._warmup_s = warmup_s
        self._started_at: Seconds | None = None
        self._sent = self._answered = self._ended = self._failed = self._judged = self._met = 0
        self._ttfts: deque[Seconds] = deque(maxlen=_RECENT)

    def sent(self, at_s: Seconds, now: Seconds) -> None:
        """Mutates: a call went out, `at_s` after the start of the run."""
        if self._started_at is None:
            self._started_at = now - at_s
        self._sent += 1

    def ended(self, record: CallRecord) -> None:
        """Mutates: this call is over, or will never be sent."""
        self._ended += 1
        self._answered += record.error not in _NEVER_SENT
        self._failed += record.error is not None
        if record.error is None and (first_s := ttft_s(record)) is not None:
            self._ttfts.append(first_s)
        if record.due_at_s >= self._warmup_s:
            self._judged += 1
            self._met += self._meets(record)

    def line(self, now: Seconds) -> str:
        """How it stands now."""
        if self._started_at is None:
            return "the first request is to come"
        since_s = now - self._started_at
        parts = [
            self._when(since_s),
            f"{self._sent} sent",
            f"{self._sent - self._answered} open",
            f"{self._ended - self._failed} ok",
            f"{self._failed} failed",
            f"{self._sent / max(min(since_s, self._duration_s), 1.0):.2f}/s",
        ]
        if self._judged:
            parts.append(f"{self._met / self._judged:.0%} within targets")
        elif since_s < self._warmup_s:
            parts.append("warming up")
        if self._ttfts:
            recent = sorted(self._ttfts)
            p50, p99 = percentile(recent, 0.5), percentile(recent, 0.99)
            parts.append(f"TTFT p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms")
        return " · ".join(parts)

    def _when(self, since_s: Seconds) -> str:
        if since_s <= self._duration_s:
            return f"{since_s:.0f} of {self._duration_s:.0f} s"
        return f"waiting for the last answers, {since_s - self._duration_s:.0f} s"


class Watcher(Protocol):
    """Whoever looks on. `is_live`: what is said replaces what was said before."""

    @property
    def is_live(self) -> bool:
        """Whether it may be spoken to several times a second."""
        ...

    def say(self, line: str) -> None:
        """This is what happens from now on."""
        ...

    def log(self, line: str) -> None:
        """This has happened."""
        ...


@contextlib.asynccontextmanager
async def shown(watcher: Watcher, line: Callable[[], str]) -> AsyncIterator[None]:
    """Say `line` again and again meanwhile: often on a terminal, seldom elsewhere."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(_TERMINAL_S if watcher.is_live else _LINES_S)
            watcher.say(line())

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
