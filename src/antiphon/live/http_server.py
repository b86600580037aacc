"""uvicorn within bounds: what a peer without a key can make this process hold is limited.

httptools bounds neither the size of a request's head nor the time that it takes, and both come
before any key is looked at. `BoundedProtocol` adds the two limits, and one on open connections.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of request line and headers."""
HEAD_TIMEOUT_S = 20.0
"""How long a request's head may take, from the connection or the head's first byte on."""
IDLE_S = 120
"""How long a connection may be idle between requests: longer than clients and proxies keep theirs
(aiohttp 15 s, Go 90 s), so that none sends a request into a connection that is being closed."""
_LAST_BYTES_S = 5
"""How long connections may take to send their last bytes once every request has ended."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. 431: the head is too large; 408: too slow; 503: too many connections."""

    max_connections: int
    """Set on the subclass that a server is given."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request's head."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._refuse(b"503 Service Unavailable", b"too many connections are open")
        else:
            self._head_begins()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer too."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, then look whether a head is still open that is already too large.

        What completes within one read is never too large: a read is bounded itself.
        """
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(
                b"431 Request Header Fields Too Large",
                b"request line and headers exceed %d bytes" % MAX_HEAD_BYTES,
            )

    def on_message_begin(self) -> None:
        """The first byte of a request came."""
        super().on_message_begin()
        if not self._in_head:
            self._head_begins()

    def on_headers_complete(self) -> None:
        """The head is whole; its body has limits of its own, in the gateway."""
        self._in_head = False
        self._disarm()
        super().on_headers_complete()

    def _head_begins(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._disarm()
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._too_slow)

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._refuse(
            b"408 Request Timeout", b"the request's head took over %d s" % int(HEAD_TIMEOUT_S)
        )

    def _refuse(self, status: bytes, why: bytes) -> None:
        """Answer in the API's form and close. Nothing of this connection has reached a route."""
        self._disarm()
        body = b'{"error":{"message":"%s","type":"invalid_request_error"}}' % why
        self.transport.write(
            b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%s" % (status, len(body), body)
        )
        self.transport.close()


class HttpServer(uvicorn.Server):
    """Serves `app` until `should_exit`; calls `on_started` once connections are accepted.

    Without uvicorn's own signal handlers, which would end streams in the middle.
    """

    def __init__(
        self, app: ASGIApp, *, max_connections: int, on_started: Callable[[], None]
    ) -> None:
        protocol = type("Protocol", (BoundedProtocol,), {"max_connections": max_connections})
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=IDLE_S,
                timeout_graceful_shutdown=_LAST_BYTES_S,
            )
        )
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: whoever runs the server has them."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self._on_started()
