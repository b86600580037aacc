"""When to stop asking something that fails, and when to ask again.

              failed, so many times in a row
    CLOSED ────────────────────────────────────► OPEN    nobody asks
      ▲                                          │   ▲
      │ the probe succeeded          cooled down │   │ the probe failed: the next wait is twice
      └──────────────────────── PROBING ◄────────┘   │ as long, up to a bound
                       one call may ask └────────────┘

Nygard, "Release It!" (2007), "Circuit Breaker". What calls report that were let through before it
opened changes nothing: only the probe counts then.
"""

from enum import StrEnum

from antiphon.errors import BugError
from antiphon.types import Seconds


class BreakerState(StrEnum):
    """Who may ask."""

    CLOSED = "closed"
    """Everybody."""
    OPEN = "open"
    """Nobody, until it has cooled down."""
    PROBING = "probing"
    """One call, whose outcome is awaited."""


class Breaker:
    """The state of one thing that may fail. Raises `BugError` unless 0 < first_s <= longest_s."""

    def __init__(self, *, failures: int, first_s: Seconds, longest_s: Seconds) -> None:
        if failures < 1 or not 0 < first_s <= longest_s:
            raise BugError(f"a breaker of {failures} failures, {first_s} … {longest_s} s")
        self._failures = failures
        self._first_s = first_s
        self._longest_s = longest_s
        self._cool_down_s = first_s
        self._in_a_row = 0
        self._ask_again_at: Seconds = 0.0
        self.state = BreakerState.CLOSED
        self.opened = 0
        """How many times it opened, after failed probes too."""

    def allows(self, now: Seconds) -> bool:
        """May a call ask? Mutates: with True while it is open, this call is the probe.

        A probe that reports nothing for as long as the wait before it is given up for another one.
        """
        if self.state is BreakerState.CLOSED:
            return True
        if now < self._ask_again_at:
            return False
        self.state = BreakerState.PROBING
        self._ask_again_at = now + self._cool_down_s
        return True

    def succeeded(self) -> None:
        """A call that was allowed has worked. Mutates."""
        if self.state is BreakerState.OPEN:
            return
        self.state = BreakerState.CLOSED
        self._in_a_row = 0
        self._cool_down_s = self._first_s

    def failed(self, now: Seconds) -> None:
        """A call that was allowed has failed. Mutates."""
        match self.state:
            case BreakerState.OPEN:
                return
            case BreakerState.PROBING:
                self._cool_down_s = min(2 * self._cool_down_s, self._longest_s)
                self._open(now)
            case BreakerState.CLOSED:
                self._in_a_row += 1
                if self._in_a_row >= self._failures:
                    self._open(now)

    def ask_again_at(self) -> Seconds | None:
        """When a call may ask that may not now; None: any call may. Does not mutate."""
        return None if self.state is BreakerState.CLOSED else self._ask_again_at

    def _open(self, now: Seconds) -> None:
        self.state = BreakerState.OPEN
        self.opened += 1
        self._in_a_row = 0
        self._ask_again_at = now + self._cool_down_s
