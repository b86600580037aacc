"""Where workers join a gateway: a Unix socket in a private folder; TLS for those of other hosts.

    worker ── Hello(info, view) ──►  judge  ── Welcome(…) ──► worker      a `RemoteWorker`
                                            ── JoinRefused(reason) ──►    closed

Whoever connects has `JOIN_TIMEOUT_S` to say hello, and may say nothing else before. Only so many
may be about to.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from antiphon.core.joining import judge_host
from antiphon.core.said_by_workers import wrong_in_view
from antiphon.errors import PeerError
from antiphon.types import (
    Hello,
    JoinRefusal,
    JoinRefused,
    Seconds,
    Welcome,
    WorkerId,
    WorkerInfo,
)
from antiphon.wire import (
    FROM_STRANGERS,
    TO_GATEWAY,
    Ending,
    Frame,
    FrameError,
    FrameStream,
    Kind,
    OtherVersionError,
    QuietLog,
    decode,
    encode,
)

from .network import TlsDoor, host_in
from .remote_worker import RemoteWorker
from .socket_folder import close_listener, listen

JOIN_TIMEOUT_S = 5.0
MAX_STRANGERS = 64

_log = logging.getLogger(__name__)


class JoinSocket:
    """Listens from `start` to `close`. `on_join` gets each worker as soon as it is in.

    `judge` says why a worker may not join those that are present (as `core.joining.judge_join`,
    with its limits filled in); `welcome` is what whoever joins is told.
    """

    def __init__(
        self,
        path: Path,
        *,
        judge: Callable[[WorkerInfo, Mapping[WorkerId, WorkerInfo]], JoinRefused | None],
        welcome: Welcome,
        on_join: Callable[[RemoteWorker], None],
        clock: Callable[[], Seconds],
        call_timeout_s: Seconds = 10.0,
    ) -> None:
        self._path = path
        self._judge = judge
        self._welcome = welcome
        self._on_join = on_join
        self._clock = clock
        self._call_timeout_s = call_timeout_s
        self._quiet = QuietLog(_log, clock)
        self._strangers: dict[FrameStream, asyncio.TimerHandle] = {}
        self._present: dict[WorkerId, RemoteWorker] = {}
        self._server: asyncio.Server | None = None
        self._close_listener: Callable[[], None] = lambda: None
        self._tls: TlsDoor | None = None
        self.on_leave: Callable[[RemoteWorker, Seconds], object] = lambda worker, timeout_s: None
        """A worker wants to end, and may take so long for what it has."""

    @property
    def present(self) -> dict[WorkerId, WorkerInfo]:
        """The workers whose streams live."""
        return {id: worker.info for id, worker in self._present.items()}

    def open_to_hosts(self, listeners: Sequence[socket.socket], context: ssl.SSLContext) -> None:
        """From `start` on workers of other hosts may come too. The listeners are its own."""
        self._tls = TlsDoor(listeners, context, self._stranger, clock=self._clock)

    async def start(self) -> None:
        """Open the door. Raises `UsageError` if the folder or the path will not do."""
        listener = listen(self._path)
        self._close_listener = partial(
            close_listener, listener, self._path, self._path.lstat().st_ino
        )
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._stranger, sock=listener)
        if self._tls is not None:
            self._tls.start()

    async def close(self) -> None:
        """Take nobody in any more, and end all streams that live."""
        if self._server is not None:
            self._server.close()
        self._close_listener()
        if self._tls is not None:
            await self._tls.close()
        for stream in list(self._strangers):
            stream.end("the gateway is shutting down")
        workers = list(self._present.values())
        await asyncio.gather(*(w.close("the gateway is shutting down") for w in workers))

    def _stranger(self) -> FrameStream:
        stream = FrameStream(FROM_STRANGERS, clock=self._clock)
        if len(self._strangers) >= MAX_STRANGERS:
            stream.end("too many connections are about to join")
            return stream
        loop = asyncio.get_running_loop()
        self._strangers[stream] = loop.call_later(JOIN_TIMEOUT_S, self._too_late, stream)
        stream.on_frame = partial(self._introduced, stream)
        stream.on_end = partial(self._left, stream)
        stream.last_words = _refuse_version
        return stream

    def _too_late(self, stream: FrameStream) -> None:
        stream.end(f"it did not say hello within {JOIN_TIMEOUT_S} s")

    def _left(self, stream: FrameStream, ending: Ending) -> None:
        """A stranger's stream is over before it joined."""
        self._strangers.pop(stream).cancel()
        self._quiet.warning("a connection did not join: %s", ending.reason)

    def _introduced(self, stream: FrameStream, frame: Frame) -> None:
        hello = decode(frame)
        refused = self._objection(hello, stream.peer_names)
        if refused is not None:
            with contextlib.suppress(PeerError):  # it went away: its stream says so
                stream.send(Kind.JOIN_REFUSED, refused)
            stream.finish(f"worker {hello.info.id!r:.80} was refused: {refused.message}")
            return
        self._strangers.pop(stream).cancel()
        self._take_in(stream, hello)

    def _objection(self, hello: Hello, names: Sequence[str] | None) -> JoinRefused | None:
        if problem := wrong_in_view(hello.view):
            return JoinRefused(reason=JoinRefusal.INVALID, message=f"its counts: {problem}")
        if names is not None and (refused := judge_host(hello.info, host_in(names) or "")):
            return refused
        return self._judge(hello.info, self.present)

    def _take_in(self, stream: FrameStream, hello: Hello) -> None:
        """Welcome it. It has joined when it has answered that: a gateway that stood still finds
        hellos of connections that were given up long ago."""
        id = hello.info.id
        stream.widen(TO_GATEWAY)
        stream.last_words = lambda _: b""
        worker = RemoteWorker(
            stream,
            hello,
            clock=self._clock,
            call_timeout_s=self._call_timeout_s,
            on_first_word=self._on_join,
            on_over=partial(self._over, id),
        )
        worker.on_leave = lambda timeout_s: self.on_leave(worker, timeout_s)
        self._present[id] = worker
        try:
            stream.send(Kind.WELCOME, self._welcome)
        except PeerError:
            return  # it went away while it came in: `_over` has been told
        stream.beat(
            self._welcome.heartbeat_s, self._welcome.lost_after_s, lambda: (Kind.HEARTBEAT, None)
        )

    def _over(self, id: WorkerId, ending: Ending) -> None:
        del self._present[id]
        self._quiet.warning("the stream of worker %s is over: %s", id, ending.reason)


def _refuse_version(error: FrameError) -> bytes:
    if not isinstance(error, OtherVersionError):
        return b""
    refused = JoinRefused(reason=JoinRefusal.PROTOCOL, message=f"at the gateway: {error}")
    return encode(Kind.JOIN_REFUSED, refused)
