"""The paths to one peer: how fast each is, what is under way on it, and which one rests.

A slice goes to a path only if no other would be done with it, and with all that is left, sooner
(the rule of earliest completion; Mooncake's TENT scores paths alike: bytes in flight and the slice,
over the speed). So paths of unequal speed end together, and a slow one gets no last slice for which
everybody waits. What is in flight is bounded by what a path carries in a short time: more would
only wait in its queues, in front of whatever else needs the wire.

Only what came speaks for a path: a handshake also gets through where no page does (a firewall, a
packet size that is lost on the way). A path that rested is tried by one connection and one slice.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from antiphon.core.tiers.breaker import Breaker, BreakerState
from antiphon.types import Seconds

from .path_speed import PathSpeed

FAILURES = 2
"""So many in a row, and a path rests."""
FIRST_REST_S: Seconds = 0.25
LONGEST_REST_S: Seconds = 30.0
QUEUED_S: Seconds = 0.015
"""What is in flight beyond a round trip: so long a queue it may make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathView:
    """One path as others may see it. `bytes_per_s` None: not known (any more)."""

    state: BreakerState
    connected: bool
    bytes_per_s: float | None
    round_trip_s: Seconds
    in_flight_bytes: int
    bytes_total: int
    failures_total: int
    rests_total: int
    problem: str
    """Of the last failure."""


def _breaker() -> Breaker:
    return Breaker(failures=FAILURES, first_s=FIRST_REST_S, longest_s=LONGEST_REST_S)


@dataclass(slots=True)
class _Path:
    speed: PathSpeed = field(default_factory=PathSpeed)
    breaker: Breaker = field(default_factory=_breaker)
    ready: bool = False
    refusals: int = 0
    """In a row."""
    in_flight: int = 0
    round_trip_s: Seconds = 0.0
    bytes_total: int = 0
    failures_total: int = 0
    problem: str = ""

    @property
    def carries(self) -> bool:
        """Whether it can be counted on: it is open, and not just on trial."""
        return self.ready and self.breaker.state is BreakerState.CLOSED


def _rests_until(one: _Path, now: Seconds) -> Seconds:
    """`now` if it does not rest."""
    until = one.breaker.ask_again_at() if one.breaker.state is BreakerState.OPEN else None
    return now if until is None else max(until, now)


class Paths:
    """Paths 0 … `count` - 1, each of `streams` connections. Mutable."""

    def __init__(self, count: int, streams: int) -> None:
        self._paths = [_Path() for _ in range(count)]
        self._streams = streams

    # ── who may ───────────────────────────────────────────────────────────────────────────────

    def may_connect(self, path: int, now: Seconds) -> bool:
        """Whether to open a connection now. Mutates: a path that rested is tried by one."""
        return self._paths[path].breaker.allows(now)

    def may_take(
        self, path: int, size: int, left: int, now: Seconds, *, without: Collection[int] = ()
    ) -> bool:
        """Whether a slice of `size` bytes goes over this path; `left`, with it, are in no flight.

        Does not mutate. Of the paths that are ready, the one that would be done soonest always may
        if it has room; it has when nothing is under way on it. `without`: paths that this slice has
        failed on; it goes over one of them only if no other carries anything.
        """
        one = self._paths[path]
        rests = one.breaker.state is BreakerState.OPEN
        if not one.ready or rests or not self._has_room(one, size, now):
            return False
        others = [
            other
            for number, other in enumerate(self._paths)
            if other is not one and other.carries and number not in without
        ]
        if path in without:
            return not others
        if not others:
            return True
        mine = (one.in_flight + size) / self._rate(one, now)
        soonest = min((other.in_flight + size) / self._rate(other, now) for other in others)
        flying = sum(other.in_flight for other in others)
        together = (flying + left) / sum(self._rate(other, now) for other in others)
        return mine <= max(soonest, together)

    # ── what happens ──────────────────────────────────────────────────────────────────────────

    def connected(self, path: int, round_trip_s: Seconds) -> None:
        """A connection is open: nothing has come over it yet. Mutates, as all that follow."""
        one = self._paths[path]
        one.ready, one.refusals = True, 0
        one.round_trip_s = round_trip_s

    def took(self, path: int, size: int, now: Seconds) -> None:
        """A slice was asked for."""
        one = self._paths[path]
        one.in_flight += size
        one.speed.began(now)

    def came(self, path: int, size: int, now: Seconds) -> None:
        """It is here."""
        one = self._paths[path]
        one.in_flight -= size
        one.bytes_total += size
        one.speed.came(size, now, busy=one.in_flight > 0)
        one.breaker.succeeded()

    def gave_back(self, path: int, size: int) -> None:
        """It will not come, for no fault of the path, or for one that is told apart."""
        one = self._paths[path]
        one.in_flight -= size
        if not one.in_flight:
            one.speed.stopped()

    def failed(self, path: int, problem: str, now: Seconds, *, refused: bool = False) -> None:
        """A connection broke, stalled or could not be opened; `refused`: the key opens nothing."""
        one = self._paths[path]
        one.failures_total += 1
        one.problem = problem
        one.refusals = one.refusals + 1 if refused else 0
        one.breaker.failed(now)
        one.ready = one.breaker.state is BreakerState.CLOSED and one.ready

    # ── what is known ─────────────────────────────────────────────────────────────────────────

    def try_again_at(self, path: int) -> Seconds | None:
        """When a path that rests may be tried; None: it does not rest."""
        return self._paths[path].breaker.ask_again_at()

    def hopeless_until(self, now: Seconds) -> Seconds:
        """Before this nothing can come: all paths rest. `now` if one does not, or is tried."""
        return min(_rests_until(one, now) for one in self._paths)

    def refused(self, now: Seconds) -> bool:
        """Whether the peer lets us in nowhere: all paths rest for that alone. Later they are tried
        again, since a connection that broke at the wrong moment looks the same."""
        resting = self.hopeless_until(now) > now
        return resting and all(one.refusals >= FAILURES for one in self._paths)

    @property
    def problem(self) -> str:
        """What was wrong last, of the paths that have failed; empty if none has."""
        return "; ".join(dict.fromkeys(one.problem for one in self._paths if one.problem))

    def stream_bytes_per_s(self, now: Seconds) -> float | None:
        """The speed of one stream of the fastest path, if any is known."""
        known = [rate for one in self._paths if (rate := one.speed.bytes_per_s(now)) is not None]
        return max(known) / self._streams if known else None

    def views(self, now: Seconds) -> tuple[PathView, ...]:
        """All paths, in order."""
        return tuple(
            PathView(
                state=one.breaker.state,
                connected=one.ready,
                bytes_per_s=one.speed.bytes_per_s(now),
                round_trip_s=one.round_trip_s,
                in_flight_bytes=one.in_flight,
                bytes_total=one.bytes_total,
                failures_total=one.failures_total,
                rests_total=one.breaker.opened,
                problem=one.problem,
            )
            for one in self._paths
        )

    def _has_room(self, one: _Path, size: int, now: Seconds) -> bool:
        """At first a slice for each stream; then what the path carries in time, two at least. On
        trial: one."""
        if not one.carries:
            return not one.in_flight
        rate = one.speed.bytes_per_s(now)
        if rate is None:
            return one.in_flight < size * self._streams
        in_time = rate * (one.round_trip_s + QUEUED_S)
        return one.in_flight < 2 * size or one.in_flight + size <= in_time

    def _rate(self, one: _Path, now: Seconds) -> float:
        """Who is not known is taken for as fast as the fastest: it is found out soon."""
        if (rate := one.speed.bytes_per_s(now)) is not None:
            return max(rate, 1.0)
        known = [rate for any_ in self._paths if (rate := any_.speed.bytes_per_s(now)) is not None]
        return max(known, default=1.0) or 1.0
