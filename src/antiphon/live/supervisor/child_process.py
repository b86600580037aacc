"""The supervisor's end of one child: its process, its channel, and what it writes."""

import asyncio
import contextlib
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Sequence

from antiphon.errors import PeerError
from antiphon.types import Seconds
from antiphon.wire import owned_by_loop

from .log_lines import LogLines
from .messages import (
    MAX_LINE_BYTES,
    FromChild,
    Launch,
    ToChild,
    decode_from_child,
    encode,
)

_PROGRAM = "antiphon.live.supervisor.child_program"
_READ_BYTES = 64 * 1024
_LAST_LINES_S = 1.0
"""How long a dead child's pipe is read on: a process that it started may hold it open."""


def command_of(module: str, name: str) -> list[str]:
    """Runs a module of ours (`child_program`); `name` is there for whoever lists processes.

    `-P`: a file in the working folder that is named like a module is not taken for it.
    """
    return [sys.executable, "-P", "-m", _PROGRAM, module, name]


class ChildProcess:
    """A running child. Made by `start`; ends by itself, by `Stop`, or by `kill`."""

    def __init__(
        self,
        process: Process,
        channel: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        pump: asyncio.Task[None],
    ) -> None:
        self._process = process
        self._reader, self._writer = channel
        self._pump = pump

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        launch: Launch,
        log: Callable[[str], None],
        clock: Callable[[], Seconds],
    ) -> "ChildProcess":
        """Start `command` and tell it `launch`; `log` gets each line that it writes.

        To be called from the main thread: Linux tells children of their parent thread's end. The
        child has a process group of its own, so that Ctrl-C on a terminal is for us alone.

        Raises `PeerError` if there can be no such process: nothing to execute, or the machine has
        no process, memory or descriptor left.
        """
        try:
            return await cls._start(command, launch, log, clock)
        except OSError as error:
            raise PeerError(f"its process could not be created: {error}") from error

    @classmethod
    async def _start(
        cls,
        command: Sequence[str],
        launch: Launch,
        log: Callable[[str], None],
        clock: Callable[[], Seconds],
    ) -> "ChildProcess":
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=theirs.fileno(),
                    stdout=PIPE,
                    stderr=STDOUT,
                    pass_fds=() if launch.listener is None else (launch.listener,),
                    process_group=0,
                )
            except BaseException:
                ours.close()
                raise
        with owned_by_loop(ours):
            reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        assert process.stdout is not None
        pump = asyncio.create_task(_pump(process.stdout, log, clock))
        child = cls(process, (reader, writer), pump)
        child.tell(launch)
        return child

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def tell(self, message: ToChild) -> None:
        """Send a message; no effect on a child that has closed its end."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def messages(self) -> AsyncIterator[FromChild]:
        """What the child says, until it closes its end. Raises `PeerError` if it is no message."""
        while True:
            try:
                line = await self._reader.readline()
            except (ConnectionError, ValueError) as error:
                if isinstance(error, ValueError):
                    raise PeerError("a message of a child is too long") from None
                return
            if not line.endswith(b"\n"):
                return
            yield decode_from_child(line)

    async def ended(self) -> int:
        """Wait for its end; its exit code, or minus the signal. All that it wrote is logged."""
        code = await self._process.wait()
        await asyncio.wait([self._pump], timeout=_LAST_LINES_S)
        self._pump.cancel()
        self._writer.close()
        return code

    def kill(self) -> None:
        """End it at once, stopped or not."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


async def _pump(
    stream: asyncio.StreamReader, log: Callable[[str], None], clock: Callable[[], Seconds]
) -> None:
    lines = LogLines(clock())
    try:
        while data := await stream.read(_READ_BYTES):
            for line in lines.feed(data, clock()):
                log(line)
    finally:
        for line in lines.end():
            log(line)
