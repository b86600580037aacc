"""HTTP/1.1 connections to one server, each for one call at a time.

Why not aiohttp: between a byte's arrival and whoever reads a stream lie its buffer, a future and a
turn of the event loop, in which all other sockets that are ready are read first: with hundreds of
streams a stamp is late by milliseconds. Here the parser (httptools) runs in the socket's callback,
and a stamp is the time at which its bytes were read. It also takes about half the CPU time.

A call is sent once. It is not repeated on another connection if one breaks: that would hide what
the measurement is to show. So connections that were idle for long, which servers tend to close, are
not used again.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import httptools

from antiphon.types import Seconds

from .server import Server

_IDLE_S: Seconds = 1.5
"""Common servers close idle connections after 2 seconds or more."""
_LINGER_S: Seconds = 1.0
"""How long a connection may take to end a message of which all that matters is here."""
_MAX_HEADERS_BYTES = 2**16


class Receiver(Protocol):
    """Whoever takes an answer: see `Incoming`."""

    def head(self, status: int, headers: dict[str, str], now: Seconds) -> None:
        """Status and headers."""
        ...

    def body(self, data: bytes, now: Seconds) -> None:
        """So much more of the body."""
        ...

    def end(self, now: Seconds) -> None:
        """That was all."""
        ...

    def lost(self, why: str, now: Seconds) -> None:
        """The connection broke before the end."""
        ...

    def garbage(self, why: str, now: Seconds) -> None:
        """What comes is no HTTP."""
        ...


class Connection(asyncio.Protocol):
    """One connection. Says when it can be used for another call, and when it is lost."""

    def __init__(
        self,
        on_idle: Callable[["Connection"], None],
        on_lost: Callable[["Connection"], None],
    ) -> None:
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._now: Seconds = 0.0
        self._begin_message()
        self.idle_since: Seconds = 0.0

    @property
    def is_open(self) -> bool:
        """Whether a call can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Mutates: send a call; `receiver` gets all that comes until its end."""
        assert self._transport is not None
        self._receiver = receiver
        self._transport.write(request)

    def release(self, receiver: Receiver, *, may_linger: bool) -> None:
        """Mutates: `receiver` wants no more. If its message has not ended, the connection is
        closed: at once, or, if it `may_linger`, unless the message ends soon.
        """
        if self._receiver is not receiver:
            return  # it has ended, and the connection may be another's by now
        if may_linger:
            loop = asyncio.get_running_loop()
            loop.call_later(_LINGER_S, lambda: self.release(receiver, may_linger=False))
        else:
            self.close()

    def close(self) -> None:
        """Mutates: at once, without a word."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # uvloop's transports have the methods, but not the class.
        self._transport = transport  # pyright: ignore[reportAttributeAccessIssue]

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._now = time.monotonic()
        if self._receiver is None:
            self.close()  # nobody asked for it
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._transport = None
        self._on_lost(self)
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        now = time.monotonic()
        if exc is None and self._status and not self._has_length:
            receiver.end(now)  # a body that lasts until the connection is closed
        else:
            receiver.lost(f"the connection was lost: {exc or 'closed by the server'}", now)

    # httptools.HTTPProtocol

    def on_header(self, name: bytes, value: bytes) -> None:
        """See `httptools`."""
        self._headers_bytes += len(name) + len(value)
        if self._headers_bytes > _MAX_HEADERS_BYTES:
            self._break(f"headers are longer than {_MAX_HEADERS_BYTES} bytes")
            return
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """See `httptools`."""
        status = self._parser.get_status_code()
        if status < 200 or self._receiver is None:
            return  # an interim answer: the real one follows
        self._status = status
        chunked = "chunked" in self._headers.get("transfer-encoding", "").lower()
        self._has_length = chunked or "content-length" in self._headers
        self._receiver.head(status, self._headers, self._now)

    def on_body(self, body: bytes) -> None:
        """See `httptools`."""
        if self._receiver is not None:
            self._receiver.body(body, self._now)

    def on_message_complete(self) -> None:
        """See `httptools`."""
        is_whole = bool(self._status)
        can_go_on = self._parser.should_keep_alive()
        self._begin_message()
        if not is_whole:
            return
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.end(self._now)
        if can_go_on and self.is_open:
            self.idle_since = self._now
            self._on_idle(self)
        else:
            self.close()

    def _begin_message(self) -> None:
        self._headers: dict[str, str] = {}
        self._headers_bytes = 0
        self._status = 0
        """Of the message that comes; 0: not known yet."""
        self._has_length = False

    def _break(self, why: str) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.garbage(why, self._now)
        self.close()


class Connections:
    """All connections to one server: as many as there are open calls."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._tls = server.tls()
        self._address: str | None = None
        """The first that was reached. It is kept: looking names up takes time from the calls."""
        self._all: set[Connection] = set()
        self._idle: list[Connection] = []

    def idle(self) -> Connection | None:
        """One that is open already, and now the caller's. None: `open` another one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and time.monotonic() - connection.idle_since < _IDLE_S:
                return connection
            connection.close()
        return None

    async def open(self) -> Connection:
        """A new one, the caller's. Raises `OSError` (of TLS as well) if the server can't be had."""
        host, loop = self._server.host, asyncio.get_running_loop()
        transport, connection = await loop.create_connection(
            lambda: Connection(self._became_idle, self._all.discard),
            self._address or host,
            self._server.port,
            ssl=self._tls,
            server_hostname=host if self._tls else None,
        )
        peer = transport.get_extra_info("peername")
        self._address = self._address or (peer and peer[0])
        if connection.is_open:
            self._all.add(connection)
        return connection

    def close(self) -> None:
        """Mutates: all of them, at once."""
        for connection in tuple(self._all):
            connection.close()
        self._idle.clear()

    def _became_idle(self, connection: Connection) -> None:
        self._idle.append(connection)
        while self._idle[0].idle_since < connection.idle_since - _IDLE_S:
            self._idle.pop(0).close()
