"""Things that are done later, and never in another order."""

from antiphon.types import Seconds

from .virtual_loop import Action
from .virtual_process import VirtualProcess


class DelayLine:
    """What a process does after a while: nothing overtakes what was put in before it."""

    def __init__(self, process: VirtualProcess) -> None:
        self._process = process
        self._busy_until: Seconds = process.now

    @property
    def idle(self) -> bool:
        """Nothing that was put in is due later than now."""
        return self._busy_until <= self._process.now

    def after(self, lag_s: Seconds, action: Action) -> None:
        """Do it `lag_s` from now, or when all that was put in before is done; at once if that is
        now."""
        process, now = self._process, self._process.now
        at = max(now + lag_s, self._busy_until)
        if at <= now:
            action()
            return
        self._busy_until = at
        process.call_at(at, action)
