"""One user's side of the OpenAI API."""

import asyncio
import errno
import time
from collections.abc import Callable, Sequence
from types import TracebackType

import aiohttp

from antiphon.types import CallError, Seconds
from antiphon.workload import Ask, Message, number_text

from .answer import Answer
from .call_body import call_bytes
from .connection import Connection, Connections
from .incoming import Incoming
from .server import LoadLimits, Server

_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.ENOMEM})
"""Of the client's own machine: the server has no part in it."""


class Client:
    """Sends asks to one server. Use as `async with Client(server) as client`.

    Connections are kept open between asks. There are as many as there are open asks.
    `on_first_content` is called at the first content of each answer.
    """

    def __init__(
        self,
        server: Server,
        limits: LoadLimits | None = None,
        *,
        on_first_content: Callable[[], None] = lambda: None,
    ) -> None:
        self._server = server
        self._limits = limits or LoadLimits()
        self._on_first_content = on_first_content
        self._connections: Connections | None = None
        self._open: dict[Incoming, None] = {}

    async def __aenter__(self) -> "Client":
        self._connections = Connections(self._server)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._connections is not None:
            self._connections.close()
            await asyncio.sleep(0)  # transports close in the loop's next turn

    @property
    def open_calls(self) -> int:
        """Calls whose end has not come."""
        return len(self._open)

    async def send(
        self, ask: Ask, due_at: Seconds | None = None, history: Sequence[Message] = ()
    ) -> Answer:
        """Send one ask now and wait for its end. Whatever goes wrong is in the answer.

        The parts of `history` must all be text. If it is cancelled, the connection is closed.
        """
        sent_at = time.monotonic()
        request = call_bytes(self._server, ask, history)
        incoming = self._incoming(ask.n, streamed=ask.stream)
        await self._exchange(request, incoming)
        return incoming.answer(ask.number, sent_at if due_at is None else due_at, sent_at)

    def give_up(self, why: str) -> None:
        """Mutates: all open calls end now, as `CallError.TIMEOUT`."""
        now = time.monotonic()
        for incoming in tuple(self._open):
            incoming.give_up(CallError.TIMEOUT, why, now)

    def _incoming(self, choices: int, *, streamed: bool) -> Incoming:
        done = asyncio.get_running_loop().create_future()
        return Incoming(
            choices,
            self._limits,
            done,
            streamed=streamed,
            on_first_content=self._on_first_content,
        )

    async def _exchange(self, request: bytes, incoming: Incoming) -> None:
        """Return when `incoming` is done."""
        timer = asyncio.get_running_loop().call_later(self._limits.timeout_s, self._late, incoming)
        self._open[incoming] = None
        connection = None
        try:
            connection = await self._connect(incoming)
            if connection is not None:
                connection.send(request, incoming)
            await incoming.done
        finally:
            timer.cancel()
            self._open.pop(incoming)
            if connection is not None:
                is_good = incoming.ended_at is not None and incoming.failure is None
                connection.release(incoming, may_linger=is_good)

    async def _connect(self, incoming: Incoming) -> Connection | None:
        """None if `incoming` is done before there is a connection."""
        if self._connections is None:
            raise RuntimeError("use the client in `async with`")
        if (idle := self._connections.idle()) is not None:
            return idle
        opening = asyncio.ensure_future(self._connections.open())
        try:
            await asyncio.wait((opening, incoming.done), return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                return opening.result()
        except OSError as error:
            kind = CallError.UNSENT if error.errno in _NO_ROOM else CallError.UNREACHABLE
            incoming.give_up(kind, f"no connection: {error}", time.monotonic())
        finally:
            opening.cancel()
        return None

    def _late(self, incoming: Incoming) -> None:
        why = f"not at its end after {number_text(self._limits.timeout_s)} s"
        incoming.give_up(CallError.TIMEOUT, why, time.monotonic())


async def wait_until_ready(url: str, *, timeout_s: Seconds) -> None:
    """Return when the server answers /ready with 200. Raises `TimeoutError` after `timeout_s`."""
    async with asyncio.timeout(timeout_s), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url.rstrip("/") + "/ready") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass  # not listening yet
            await asyncio.sleep(0.05)
