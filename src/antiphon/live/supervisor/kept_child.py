"""One child over all its lives: started, watched, started again.

starting ── Ready ──► ready ── dies ──► waiting ── back-off ──► starting
   │ start_timeout_s: killed, dies         ▲
   └───────────────────────────────────────┘       stop ends it in every state

A ready one whose process lives, but which the gateway misses for hung_after_s, is killed and dies;
and so is a gateway that has said that it is alive, and says so no more.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from antiphon.core.restart_backoff import RestartBackoff
from antiphon.errors import PeerError, UsageError
from antiphon.types import ClusterConfig, Role, Seconds

from .child_process import ChildProcess
from .messages import FromChild, Launch, Ready, Refused, Stop, ToChild

MOST_FAILED_STARTS = 5
"""A child that dies that often before it was ever ready is given up."""
LAST_WORDS_S = 10.0
"""How long a child that was stopped, or closed its channel, may take to exit; then it is killed."""

_NO_PROCESS = 127
"""The exit code of a life for which no process could be created, as shells have it."""
_STOOD_STILL_S = 1.0
"""A timer that is so late says that this process did not run: nobody is to blame, look again."""


class State(StrEnum):
    """What a child is doing."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    WAITING = "waiting"


class KeptChild:
    """A child that is to run. `keep` runs it; the other methods say what is to happen to it.

    `hear` gets what it says, `changed` is called when `state`, `pid` or `problem` may be new.
    """

    def __init__(
        self,
        command: Sequence[str],
        launch: Launch,
        *,
        config: ClusterConfig,
        clock: Callable[[], Seconds],
        log: Callable[[str], None],
        hear: Callable[["KeptChild", FromChild], None],
        changed: Callable[[], None],
    ) -> None:
        self._command = command
        self._launch = launch
        self._start_timeout_s = config.start_timeout_s
        self._hung_after_s = config.hung_after_s
        self._backoff = RestartBackoff(config.restart_backoff_s)
        self._clock = clock
        self._log = log
        self._hear = hear
        self._changed = changed
        self._tries = MOST_FAILED_STARTS
        self._child: ChildProcess | None = None
        self._ready_at: Seconds | None = None
        self._was_ready = False
        self._stopping = False
        self._restarting = False
        self._asked = asyncio.Event()
        self._finished = asyncio.Event()
        self._state = State.WAITING
        self._problem = ""
        self._refusal: str | None = None
        self._cause = ""
        self._missed: asyncio.TimerHandle | None = None
        self._missed_how = ""

    @property
    def launch(self) -> Launch:
        """What its newest life was told, or its next one will be."""
        return self._launch

    @property
    def state(self) -> State:
        """What it is doing."""
        return self._state

    @property
    def was_ready(self) -> bool:
        """It was ready once, in this life or an earlier one."""
        return self._was_ready

    @property
    def problem(self) -> str:
        """How the last life ended, until the next one is ready; "" if nothing is wrong."""
        return self._problem

    @property
    def pid(self) -> int | None:
        """Its process id; None between two lives."""
        return self._child.pid if self._child is not None else None

    # What is to happen.

    def tell(self, message: ToChild) -> None:
        """Send a message, if it is ready; else nothing."""
        if self._child is not None and self._state is State.READY:
            self._child.tell(message)

    def keep_role(self, role: Role) -> None:
        """Later lives have another role."""
        self._launch = msgspec.structs.replace(self._launch, role=role)

    def keep_drained(self, workers: tuple[str, ...]) -> None:
        """Later lives are told that these workers get nothing new."""
        self._launch = msgspec.structs.replace(self._launch, drained=workers)

    def alive(self) -> None:
        """It says that it runs: from now on it must say so again within `cluster.hung_after_s`."""
        self._expect(False, "")
        self._expect(True, "silent")

    def miss(self, absent: bool) -> None:
        """Whether the gateway is there and has no sign of it: one that is ready must come back
        within `cluster.hung_after_s`. To be called again when that, or its state, has changed.
        """
        self._expect(absent, "not with the gateway")

    def _expect(self, absent: bool, how: str) -> None:
        if absent and self._state is State.READY:
            if self._missed is None:
                self._missed_how = how
                loop = asyncio.get_running_loop()
                self._missed = loop.call_later(self._hung_after_s, self._hung)
        elif self._missed is not None:
            self._missed.cancel()
            self._missed = None

    def restart(self) -> None:
        """End this life and begin another without waiting."""
        self._restarting = True
        self._leave()

    async def stop(self) -> None:
        """Let it exit, for good, and wait until it has. One that is not ready has nothing to see
        to, and is killed."""
        self.end()
        await self._finished.wait()

    def end(self) -> None:
        """`stop`, without waiting for it: `keep` returns then."""
        self._stopping = True
        self._leave()

    def _leave(self) -> None:
        self._asked.set()
        if self._child is None:
            return
        if self._state is State.STARTING:
            self._child.kill()
        else:
            self._child.tell(Stop())
            asyncio.get_running_loop().call_later(LAST_WORDS_S, self._child.kill)
        self._become(State.STOPPING)

    # Its lives.

    async def keep(self, tries: int = MOST_FAILED_STARTS) -> int:
        """Run it until `stop`; returns the exit code of its last life. Cancelled: killed at once.

        Raises `UsageError` if it was refused, or `PeerError` if it died `tries` times before it
        was ever ready.
        """
        self._tries = tries
        try:
            while True:
                code = await self._live()
                if self._stopping:
                    return code
                if not self._restarting:
                    await self._wait(code)
                    if self._stopping:
                        return code
                self._launch = msgspec.structs.replace(self._launch, life=self._launch.life + 1)
        finally:
            self._finished.set()

    async def _live(self) -> int:
        self._asked.clear()
        self._ready_at = None
        self._refusal, self._cause = None, ""
        try:
            child = await ChildProcess.start(self._command, self._launch, self._log, self._clock)
        except PeerError as error:
            self._cause, self._restarting = str(error), False
            return _NO_PROCESS
        self._child, self._restarting = child, False
        self._become(State.STARTING)
        if self._stopping:
            child.kill()
        late = asyncio.get_running_loop().call_later(self._start_timeout_s, self._too_slow)
        try:
            await self._listen(child, late)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    return await child.ended()
        finally:
            late.cancel()
            child.kill()
            code = await child.ended()
            self._child = None
        return code

    async def _listen(self, child: ChildProcess, late: asyncio.TimerHandle) -> None:
        """Until the child closes its end, or says what is no message."""
        try:
            async for message in child.messages():
                match message:
                    case Ready() if self._state is State.STARTING:
                        late.cancel()
                        self._ready_at = self._clock()
                        self._was_ready = True
                        self._problem = ""
                        self._become(State.READY)
                    case Refused(text):
                        self._refusal = text
                self._hear(self, message)
        except PeerError as error:
            self._cause = str(error)
            child.kill()

    async def _wait(self, code: int) -> None:
        """It died: say so, and wait before the next life, or raise if there is to be none."""
        if self._refusal is not None and not self._was_ready:
            raise UsageError(self._refusal)
        wait_s = self._backoff.died(self._ready_at, self._clock())
        problem = self._refusal or self._cause or _how_it_ended(code)
        if not self._was_ready and self._backoff.early_deaths >= self._tries:
            times = "" if self._tries == 1 else f" {self._tries} times"
            raise PeerError(
                f"{self._launch.name} could not be started: it ended{times} before it was ready "
                f"({problem})"
            )
        self._problem = problem
        self._log(f"ended ({problem}): started again in {wait_s:g} s")
        self._become(State.WAITING)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._asked.wait()

    def _too_slow(self) -> None:
        self._cause = f"not ready within cluster.start_timeout_s = {self._start_timeout_s:g} s"
        if self._child is not None:
            self._child.kill()

    def _hung(self) -> None:
        assert self._missed is not None
        late_s = asyncio.get_running_loop().time() - self._missed.when()
        self._missed = None
        if late_s > _STOOD_STILL_S:
            self._expect(True, self._missed_how)
            return
        self._cause = f"its process hung: {self._missed_how} for {self._hung_after_s:g} s"
        if self._child is not None:
            self._child.kill()

    def _become(self, state: State) -> None:
        self._state = state
        if state is not State.READY:
            self._expect(False, "")
        self._changed()


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
