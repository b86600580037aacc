"""A process in virtual time: lives that end and begin, a clock of its own, stop and continue."""

from collections import deque
from functools import partial

from antiphon.core.faults import Node
from antiphon.errors import BugError
from antiphon.types import Incarnation, Seconds

from .virtual_loop import Action, VirtualLoop


class VirtualProcess:
    """Where the actions of one named process run. It begins dead: `start` begins its first life.

    An action belongs to the life that asked for it, and is forgotten when that ends. While the
    process is stopped, what falls due waits (as timers and bytes in socket buffers do) and runs,
    in order, when it goes on. `now` is the process's own monotonic clock: two processes' clocks
    differ by a constant, so a point in time of one means nothing to another.
    """

    def __init__(self, name: Node, loop: VirtualLoop, *, clock_offset_s: Seconds = 0.0) -> None:
        self.name = name
        self.lives = 0
        self.crashes = self.stops = self.slowdowns = 0
        self.slow_factor = 1.0
        """How many times as long computing takes now."""
        self.held_back = 0
        """Actions that had to wait because the process was stopped, so far."""
        self.on_start: Action = lambda: None
        """What a new life does first."""
        self.on_disturbed: Action = lambda: None
        """What this life does just before it dies, stands still or computes at another pace."""
        self._loop = loop
        self._clock_offset_s = clock_offset_s
        self.alive = False
        """Does it have a life now, stopped or not?"""
        self.stopped = False
        """Does it have a life that stands still?"""
        self._backlog: deque[Action] = deque()
        self._at_crash: dict[Action, None] = {}

    @property
    def incarnation(self) -> Incarnation:
        """The name of the present life, or of the last one."""
        return Incarnation(f"{self.name}#{self.lives}")

    @property
    def now(self) -> Seconds:
        """What its clock shows."""
        return self._loop.now + self._clock_offset_s

    def call_at(self, at: Seconds, action: Action) -> None:
        """Run `action` in this life, when this process's clock shows `at`, or now if that is past.

        No effect on a dead process: a crash may come in the midst of one of its actions.
        """
        loop = self._loop
        at -= self._clock_offset_s
        loop.call_at(loop.now if at < loop.now else at, partial(self._in_life, self.lives, action))

    def _in_life(self, life: int, action: Action) -> None:
        if self.alive and self.lives == life:
            self._run(action)

    def deliver(self, action: Action) -> None:
        """Run `action` now, or when the process goes on; never if it is dead."""
        if self.alive:
            self._run(action)

    def _run(self, action: Action) -> None:
        if self.stopped:
            self.held_back += 1
            self._backlog.append(action)
        else:
            action()

    def at_crash(self, action: Action) -> None:
        """What the rest of the world does when this life ends: in the order of these calls."""
        self._at_crash[action] = None

    def not_at_crash(self, action: Action) -> None:
        """Nothing of that is left to be done; fine if nothing ever was.

        A gateway outlives thousands of workers' lives, and none of them may stay with it.
        """
        self._at_crash.pop(action, None)

    def start(self) -> None:
        """Begin a new life. The old one must have ended."""
        if self.alive:
            raise BugError(f"{self.name} starts and lives already")
        self.lives += 1
        self.alive = True
        self.on_start()

    def crash(self) -> None:
        """End the life, without a word of its own. No effect on a dead process."""
        if not self.alive:
            return
        self._disturb()
        self.crashes += 1
        self.slow_factor = 1.0
        self.alive = self.stopped = False
        self._backlog.clear()
        self.on_disturbed = lambda: None
        noticed, self._at_crash = self._at_crash, {}
        for notice in noticed:
            notice()

    def stop(self) -> None:
        """Stand still from now on. No effect on a process that is dead or stopped."""
        if self.alive and not self.stopped:
            self._disturb()
            self.stops += 1
            self.stopped = True

    def go_on(self) -> None:
        """Run what has waited, in order, and go on."""
        self.stopped = False
        while self._backlog and self.alive and not self.stopped:
            self._backlog.popleft()()

    def slow_down(self, factor: float) -> None:
        """Computing takes that many times as long, on top of what it takes now."""
        self._disturb()
        self.slowdowns += 1
        self.slow_factor *= factor

    def speed_up(self, factor: float, life: int) -> None:
        """Take back one `slow_down` of that life."""
        if self.lives == life and self.alive:
            self._disturb()
            self.slow_factor /= factor

    def _disturb(self) -> None:
        if self.alive and not self.stopped:
            self.on_disturbed()
