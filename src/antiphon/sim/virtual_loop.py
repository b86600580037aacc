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
        self._times: list[Seconds] = []
        """A heap of the keys of `_due`."""
        self._due: dict[Seconds, list[Action]] = {}
        """In the order in which they were scheduled: much happens at the same time."""

    def call_at(self, at: Seconds, action: Action) -> None:
        """Run `action` when the clock shows `at`. Raises `BugError` if that is in the past."""
        if not at >= self.now:
            raise BugError(f"{at} s is not in the future of {self.now} s")
        due = self._due.get(at)
        if due is None:
            self._due[at] = [action]
            heappush(self._times, at)
        else:
            due.append(action)

    def run(self, *, max_actions: int = 1_000_000) -> None:
        """Run until nothing is due. Raises `BugError` if that takes more than `max_actions`."""
        if not self._run(float("inf"), max_actions):
            raise BugError(f"virtual time does not come to rest within {max_actions} actions")

    def run_until(self, at: Seconds, *, max_actions: int = 1_000_000) -> None:
        """Run what is due up to that time; then the clock shows it. Raises as `run` does."""
        if not self._run(at, max_actions):
            raise BugError(f"{at} s does not come within {max_actions} actions")
        self.now = max(self.now, at)

    def _run(self, end: Seconds, max_actions: int) -> bool:
        """Run what is due up to `end`. False: so many actions do not suffice."""
        times, due = self._times, self._due
        while times and times[0] <= end:
            self.now = now = times[0]
            actions, begun = due[now], 0
            try:
                for action in actions:  # those that are scheduled for now on the way among them
                    if not max_actions:
                        return False
                    max_actions -= 1
                    begun += 1
                    action()
            finally:
                del actions[:begun]
                if not actions:
                    del due[heappop(times)]
        return True
