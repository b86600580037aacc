"""How long to wait before a process that died is started again."""

from antiphon.types import Seconds

DOUBLINGS = 6
"""The wait grows to 64 times the first one."""


class RestartBackoff:
    """One process's restarts: the wait doubles with each early death.

    A life that was healthy for as long as the longest wait makes the next death a first one.
    """

    def __init__(self, first_s: Seconds) -> None:
        self._first_s = first_s
        self._early_deaths = 0

    @property
    def early_deaths(self) -> int:
        """How many deaths in a row came before the process was healthy for long."""
        return self._early_deaths

    @property
    def longest_s(self) -> Seconds:
        """The longest wait, and the healthy time that makes the wait short again."""
        return self._first_s * 2**DOUBLINGS

    def died(self, ready_at: Seconds | None, now: Seconds) -> Seconds:
        """The process died `now`, having been ready since `ready_at`; how long to wait."""
        if ready_at is not None and now - ready_at >= self.longest_s:
            self._early_deaths = 0
        self._early_deaths += 1
        return self._first_s * 2 ** min(self._early_deaths - 1, DOUBLINGS)
