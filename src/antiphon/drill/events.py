"""Events of a live cluster that a drill can see from outside, counted.

token     a user gets the first text of an answer     the drill's own client
end       a user's answer is over                     the drill's own client
offer     a worker has computed a prompt for another  /metrics
pulled    a worker goes on with another's prompt      /metrics
join      a worker joins in a new life                `antiphon status`
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

from antiphon.core.faults import Boundary, When
from antiphon.errors import PeerError
from antiphon.types import Seconds

from .lives import lives_in
from .target import Target

_METRICS: Mapping[Boundary, str] = {
    Boundary.OFFER: "antiphon_offers_total",
    Boundary.PULLED: "antiphon_pulls_total",
}
SEEN = (Boundary.TOKEN, Boundary.END, *_METRICS, Boundary.JOIN)
"""The events that a drill sees; the simulator sees all."""
_POLL_S: Seconds = 0.02


class EventCounts:
    """How often each event of `SEEN` has happened since `watch` began."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._counts: Counter[Boundary] = Counter()
        self._news = asyncio.Event()
        self._metrics: dict[Boundary, float] = {}
        self._lives: dict[str, str | None] | None = None

    def count(self, boundary: Boundary, times: int = 1) -> None:
        """It happened so many times more."""
        if times > 0:
            self._counts[boundary] += times
            self._news.set()
            self._news = asyncio.Event()

    async def reached(self, when: When) -> None:
        """Return when it has happened that often."""
        while self._counts[when.boundary] < when.occurrence:
            await self._news.wait()

    async def watch(self, boundaries: frozenset[Boundary]) -> None:
        """Count from now on, until cancelled, those of `boundaries` that nobody tells it. A gateway
        that does not answer is asked again; what it counted until its end is lost."""
        self._counts.clear()
        while boundaries & {*_METRICS, Boundary.JOIN}:
            try:
                if boundaries & _METRICS.keys():
                    self._read_metrics(await self._target.samples())
                if Boundary.JOIN in boundaries:
                    self._read_lives(await self._lives_now())
            except PeerError:
                pass
            await asyncio.sleep(_POLL_S)

    def _read_metrics(self, samples: Mapping[str, float]) -> None:
        for boundary, name in _METRICS.items():
            now = sum(count for series, count in samples.items() if series.split("{")[0] == name)
            before = self._metrics.get(boundary)
            self._metrics[boundary] = now
            if before is not None:
                # A new gateway counts from 0.
                self.count(boundary, round(now - before if now >= before else now))

    async def _lives_now(self) -> dict[str, str | None]:
        lives = lives_in(await self._target.status())
        workers = (life for life in lives.values() if life.role not in ("gateway", "store"))
        return {life.name: life.life for life in workers if life.there}

    def _read_lives(self, now: dict[str, str | None]) -> None:
        if self._lives is not None:
            new = (name for name, life in now.items() if self._lives.get(name) != life)
            self.count(Boundary.JOIN, sum(1 for _ in new))
        self._lives = {**(self._lives or {}), **now}
