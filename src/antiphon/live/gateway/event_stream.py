"""Sending a growing reply: server-sent events, keep-alive, and noticing that the client left."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from antiphon.types import Seconds

from .answers import COMMENT, DONE
from .reply import Delta, Reply, TokenCounts

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Encoder(Protocol):
    """Turns what is new into server-sent events."""

    def chunks(self, deltas: list[Delta]) -> bytes:
        """Events for these deltas."""
        ...

    def last(self, counts: TokenCounts) -> bytes:
        """Events that end a successful stream, before `[DONE]`."""
        ...


@contextmanager
def watched(receive: Receive, on_gone: Callable[[], None]) -> Iterator[None]:
    """Call `on_gone` as soon as the client disconnects. The body must have been read before."""
    watcher = asyncio.ensure_future(receive())

    def gone(future: asyncio.Future[Message]) -> None:
        if not future.cancelled():
            on_gone()

    watcher.add_done_callback(gone)
    try:
        yield
    finally:
        watcher.remove_done_callback(gone)
        watcher.cancel()


class EventStream(Response):
    """The streamed form of a reply.

    The headers wait for the first token or the first keep-alive: until then a refusal is a real
    status. After that an error is an event of the stream, followed by `[DONE]`.
    """

    def __init__(
        self,
        reply: Reply,
        encoder: Encoder,
        *,
        cancel: Callable[[], None],
        close: Callable[[], None],
        keep_alive_s: Seconds,
        clock: Callable[[], Seconds],
    ) -> None:
        super().__init__(None, 200, _HEADERS, "text/event-stream")
        del self.headers["content-length"]
        self._reply = reply
        self._encoder = encoder
        self._cancel = cancel
        self._close = close
        self._keep_alive_s = keep_alive_s
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run to the end of the reply, or until the client leaves."""
        try:
            with watched(receive, self._cancel):
                self._reply.watch_silence(self._keep_alive_s, self._clock)
                await self._send_all(scope, receive, send)
        finally:
            self._close()

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = self._reply
        await reply.changed()
        if reply.error is not None:
            await reply.error.response()(scope, receive, send)
            return
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        while True:
            over = reply.over or reply.error is not None
            body = self._encoder.chunks(reply.take())
            if over:
                body += self._ending()
            elif not body and reply.quiet:
                body = COMMENT
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": not over})
                reply.sent(self._clock())
            if over:
                return
            await reply.changed()

    def _ending(self) -> bytes:
        error = self._reply.error
        if error is None:
            return self._encoder.last(self._reply.counts) + DONE
        return b"data: " + error.body() + b"\n\n" + DONE
