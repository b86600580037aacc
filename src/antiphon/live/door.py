"""The door of a Unix socket at which strangers say who they are before a stream begins.

    accept ──► greet, a task each ──► a stream of the host's, or goodbye

What rides on a first message (file descriptors) needs the bare socket, so that hellos are read from
it before a `FrameStream` takes it over. What happens to one caller touches no other.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from antiphon.errors import PeerError
from antiphon.types import Seconds
from antiphon.wire import QuietLog

from .failure import why
from .socket_folder import close_listener, listen

HELLO_TIMEOUT_S = 5.0
MAX_GREETINGS = 64
"""So many may be about to say hello; whoever comes then waits in the listener's queue."""
_ACCEPT_AGAIN_S = 0.1

_log = logging.getLogger(__name__)


class Door:
    """Open from `start` to `close`. `greet` owns a connection until a stream does; it may raise
    what ends an acquaintance (`OSError`, `TimeoutError`, `PeerError`): then the connection is
    closed. A law that it finds broken reaches the loop's guard: nobody awaits a greeting.
    """

    def __init__(
        self,
        path: Path,
        greet: Callable[[socket.socket], Coroutine[Any, Any, None]],
        *,
        clock: Callable[[], Seconds],
    ) -> None:
        self._path = path
        self._greet = greet
        self._quiet = QuietLog(_log, clock)
        self._greetings: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(MAX_GREETINGS)
        self._accepting: asyncio.Task[None] | None = None
        self._close_listener: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Open it. Raises `UsageError` if the folder or the path will not do."""
        listener = listen(self._path)
        inode = self._path.lstat().st_ino
        self._close_listener = partial(close_listener, listener, self._path, inode)
        self._accepting = asyncio.create_task(self._accept(listener), name=f"door {self._path}")

    async def close(self) -> None:
        """Let nobody in any more; who is being greeted is sent away."""
        tasks = [*self._greetings, *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._close_listener()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._places.acquire()
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                self._places.release()
                self._quiet.trouble("no connection at %s could be taken: %s", self._path, error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            task = loop.create_task(self._greeted(connection))
            self._greetings.add(task)
            task.add_done_callback(self._over)

    async def _greeted(self, connection: socket.socket) -> None:
        try:
            await self._greet(connection)
        except (OSError, TimeoutError, PeerError) as error:
            self._quiet.trouble("who came to %s did not get in: %s", self._path, why(error))
            connection.close()
        except BaseException:
            connection.close()
            raise

    def _over(self, task: asyncio.Task[None]) -> None:
        self._greetings.discard(task)
        self._places.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
