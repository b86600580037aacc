"""How long to wait before somebody who is not there is called again."""

from antiphon.types import Seconds


class ReconnectWait:
    """One caller's waits: each twice the one before, up to the longest. Mutable, pure."""

    def __init__(self, first_s: Seconds, longest_s: Seconds) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    @property
    def is_longest(self) -> bool:
        """Whether it has been in vain for so long that waits grow no more."""
        return self._next_s == self._longest_s

    def after(self, *, came: bool = False) -> Seconds:
        """How long to wait now, after a call that was answered or not. Mutates."""
        wait_s = self._first_s if came else self._next_s
        self._next_s = min(2 * wait_s, self._longest_s)
        return wait_s
