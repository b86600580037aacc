"""A child's end of the channel to its supervisor, which is also its lifeline.

The channel is the child's standard input. When its other end closes, the supervisor is gone, and
the child ends at once, whatever it is doing; Linux sends SIGKILL besides (PR_SET_PDEATHSIG), which
reaches a stopped child too. So a supervisor that is killed leaves nothing running.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial

from antiphon.core.config import build
from antiphon.errors import PeerError, UsageError
from antiphon.host import die_with_parent
from antiphon.types import Config

from .messages import (
    MAX_LINE_BYTES,
    FromChild,
    Launch,
    Refused,
    Say,
    ToChild,
    ToRunning,
    decode_to_child,
    encode,
)

ORPHANED = 3
"""Exit code of a child whose supervisor is gone."""


class Parent:
    """The supervisor, seen from a child. Its messages can be sent from any thread."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lines = channel.makefile("rb")
        self._sending = threading.Lock()
        self._hearing = threading.Lock()
        self._unheard: list[ToRunning] = []
        self._deliver: Callable[[ToRunning], object] = self._unheard.append
        launch = self._next()
        if not isinstance(launch, Launch):
            raise PeerError("the supervisor's first word is not what to do")
        self.launch: Launch = launch
        self.config: Config = build(launch.config)

    def follow(self) -> None:
        """From now on messages are read, on a thread; the process ends when they end."""
        threading.Thread(target=self._follow, name="parent", daemon=True).start()

    def listen(self, hear: Callable[[ToRunning], None]) -> None:
        """`hear` gets every message, those that came before too, on the running event loop."""
        loop = asyncio.get_running_loop()
        with self._hearing:
            self._deliver = partial(loop.call_soon_threadsafe, hear)
            for message in self._unheard:
                self._deliver(message)
            self._unheard.clear()

    def say(self, line: str) -> None:
        """Tell what happens from now on."""
        self.tell(Say(line))

    def tell(self, message: FromChild) -> None:
        """Send a message. One that can't be sent is lost: then this process is about to end."""
        with self._sending, contextlib.suppress(OSError):
            self._channel.sendall(encode(message))

    def tell_if_read(self, message: FromChild) -> None:
        """`tell`, unless what was told before is not read: whoever says that he lives must not
        wait for a parent that stands still."""
        with self._sending, contextlib.suppress(OSError):
            self._channel.send(encode(message), socket.MSG_DONTWAIT)

    def _follow(self) -> None:
        with contextlib.suppress(OSError, PeerError):
            while (message := self._next()) is not None:
                if not isinstance(message, Launch):
                    self._pass_on(message)
        os._exit(ORPHANED)

    def _pass_on(self, message: ToRunning) -> None:
        with self._hearing:
            try:
                self._deliver(message)
            except RuntimeError:  # the event loop is over, and the process about to be
                self._unheard.append(message)

    def _next(self) -> ToChild | None:
        """The next message; None: there will be none."""
        line = self._lines.readline(MAX_LINE_BYTES)
        return decode_to_child(line) if line else None


def run_child(main: Callable[[Parent], int]) -> None:
    """Do a child's `main` and exit with what it returns. A `UsageError` travels to the parent.

    Searches for cycles begin here, and never look at what was loaded before: it stays.
    """
    gc.freeze()
    gc.enable()
    parent = _find_parent()
    parent.follow()
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING
    )
    try:
        code = main(parent)
    except UsageError as error:
        parent.tell(Refused(" ".join(str(error).split())))
        code = 2
    sys.exit(code)


def _find_parent() -> Parent:
    """The parent behind standard input, which is nothing from then on."""
    parent_pid = os.getppid()
    die_with_parent(signal.SIGKILL)
    # Ctrl-C is for the supervisor, which says what is to be done then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        channel = socket.socket(fileno=os.dup(0))
        parent = Parent(channel)
    except (OSError, PeerError):
        print("this program is started by `antiphon serve`", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    if os.getppid() != parent_pid:
        raise SystemExit(ORPHANED)
    return parent
