"""Virtual time: actions at points in time, run in a total order and in no real time."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

from antiphon.errors import BugError
from antiphon.types import Seconds

Action: TypeAlias = Callable[[], object]
"""What it returns is not looked at."""


class VirtualLoop:
    """An event loop whose clock jumps. Order: time, then who was scheduled first."""

    def __init__(self, now: Seconds = 0.0) -> None:
        self.now = now
        self._scheduled = 0
        self._due: list[tuple[Seconds, int, Action]] = []

    def call_at(self, at: Seconds, action: Action) -> None:
        """Run `action` when the clock shows `at`. Raises `BugError` if that is in the past."""
        if not at >= self.now:
            raise BugError(f"{at} s is not in the future of {self.now} s")
        heappush(self._due, (at, self._scheduled, action))
        self._scheduled += 1

    def run(self, *, max_actions: int = 1_000_000) -> None:
        """Run until nothing is due. Raises `BugError` if that takes more than `max_actions`."""
        for _ in range(max_actions):
            if not self._due:
                return
            self.now, _, action = heappop(self._due)
            action()
        raise BugError(f"virtual time does not come to rest within {max_actions} actions")

    def run_until(self, at: Seconds, *, max_actions: int = 1_000_000) -> None:
        """Run what is due up to that time; then the clock shows it. Raises as `run` does."""
        for _ in range(max_actions):
            if not self._due or self._due[0][0] > at:
                self.now = max(self.now, at)
                return
            self.now, _, action = heappop(self._due)
            action()
        raise BugError(f"{at} s does not come within {max_actions} actions")
