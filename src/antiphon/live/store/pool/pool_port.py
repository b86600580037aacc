"""Where the other stores of a pool come in, and the gateway of another host.

    store ── PoolHello ──► PoolPort ── PoolWelcome ──► a `PoolSession`; or StoreRefused
    gateway ── StoreWatch ──► PoolPort ── KvDump, KvEvents … ──► a `Watcher`; or StoreRefused

With keys: TLS, a store may say no other name than its certificate's, and only the host of the
gateway has a gateway. Without: a Unix socket that only this user can reach, called after the port.
Whoever connects has `HELLO_TIMEOUT_S` to say hello, and may say nothing else before; only so many
may be about to.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from antiphon.core.host_names import format_host_port
from antiphon.errors import PeerError, UsageError
from antiphon.live import socket_folder
from antiphon.live.network import GATEWAY_NAME, HostKeys, TlsDoor, bound, tls_name
from antiphon.live.store.watcher import Watcher
from antiphon.types import (
    ClusterConfig,
    HostName,
    PoolHello,
    PoolWelcome,
    Seconds,
    StoreRefusal,
    StoreRefused,
    StoreWatch,
)
from antiphon.wire import (
    FROM_STRANGE_STORES,
    TO_POOLED_STORE,
    TO_WATCHED_STORE,
    Ending,
    Frame,
    FrameError,
    FrameStream,
    Kind,
    QuietLog,
    decode,
)

from .pool_dial import pool_socket
from .pool_session import PoolSession

HELLO_TIMEOUT_S = 5.0
ADMIT_TIMEOUT_S = 30.0
MOST_STRANGERS = 64
_KEY = "store_pool.listen (--pool-listen, or store_port in the cluster's file)"

_log = logging.getLogger(__name__)


Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Host(Protocol):
    """Who decides about stores that come."""

    async def admit_store(self, hello: PoolHello) -> StoreRefused | tuple[PoolSession, PoolWelcome]:
        """A store asks to be in the pool."""
        ...

    def watch(self, watch: StoreWatch) -> StoreRefused | Watcher:
        """The gateway of another host wants to hear what is here."""
        ...


class PoolPort:
    """Listens from its making; lets stores in from `start` to `close`."""

    def __init__(
        self,
        listen: tuple[str, int],
        keys: HostKeys | None,
        config: ClusterConfig,
        *,
        more: Sequence[str] = (),
        clock: Callable[[], Seconds],
    ) -> None:
        """`more`: addresses at which it listens besides, with keys. Raises `UsageError`: it can't
        listen there, or the keys will not do."""
        self.host, self.port = listen
        self._context = keys.server() if keys is not None else None
        self._close_listeners: Callable[[], None]
        if keys is not None:
            self._listeners = bound([self.host, *more], self.port, _KEY)
            self._close_listeners = self._close_tcp
        else:
            path = pool_socket(self.port)
            try:
                listener = socket_folder.listen(path)
            except socket_folder.SocketTakenError as error:
                raise UsageError(f"{_KEY} = {self}: {error}: choose another port") from None
            except UsageError as error:
                raise UsageError(f"{_KEY} = {self}: {error}") from None
            self._listeners = [listener]
            self._close_listeners = partial(
                socket_folder.close_listener, listener, path, path.lstat().st_ino
            )
        self._config = config
        self._clock = clock
        self._quiet = QuietLog(_log, clock)
        self._strangers: dict[FrameStream, asyncio.TimerHandle] = {}
        self._sessions: dict[FrameStream, PoolSession | Watcher] = {}
        self._door: TlsDoor | None = None
        self._server: asyncio.Server | None = None
        self._host: Host | None = None
        self._spawn: Spawn | None = None

    def __str__(self) -> str:
        return format_host_port(self.host, self.port)

    async def start(self, host: Host, spawn: Spawn) -> None:
        """Let stores in: `host` decides about them. `spawn` runs the greetings."""
        self._host, self._spawn = host, spawn
        if self._context is not None:
            self._door = TlsDoor(self._listeners, self._context, self._stranger, clock=self._clock)
            self._door.start()
        else:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._stranger, sock=self._listeners[0])

    async def close(self) -> None:
        """End all streams, and let nobody in any more."""
        if self._door is not None:
            await self._door.close()
        if self._server is not None:
            self._server.close()
        self._close_listeners()
        for stream in [*self._strangers, *self._sessions]:
            stream.end("the store is shutting down")

    def _close_tcp(self) -> None:
        for listener in self._listeners:
            listener.close()

    # ── a stream ─────────────────────────────────────────────────────────────────────────────

    def _stranger(self) -> FrameStream:
        stream = FrameStream(FROM_STRANGE_STORES, clock=self._clock, answers=True)
        if len(self._strangers) >= MOST_STRANGERS:
            stream.end("too many stores are about to come in")
            return stream
        loop = asyncio.get_running_loop()
        timer = loop.call_later(HELLO_TIMEOUT_S, stream.end, "it did not say hello in time")
        self._strangers[stream] = timer
        stream.on_frame = partial(self._introduced, stream)
        stream.on_end = partial(self._over, stream)
        return stream

    def _introduced(self, stream: FrameStream, frame: Frame) -> None:
        hello, names = decode(frame), stream.peer_names
        if isinstance(hello, StoreWatch):
            self._watched(stream, hello, names)
            return
        assert isinstance(hello, PoolHello)
        if names is not None and tls_name(HostName(hello.name)) not in names:
            text = f"its certificate is not of {hello.name!r:.60}"
            self._refuse(stream, StoreRefused(StoreRefusal.INVALID, text))
            return
        self._strangers[stream].cancel()
        stream.on_frame = _too_early
        assert self._spawn is not None
        self._spawn(self._greet(stream, hello))

    def _watched(self, stream: FrameStream, watch: StoreWatch, names: Sequence[str] | None) -> None:
        assert self._host is not None
        if names is not None and GATEWAY_NAME not in names:
            text = "its certificate is of a host without gateway, and a gateway wants to watch"
            self._refuse(stream, StoreRefused(StoreRefusal.INVALID, text))
            return
        match self._host.watch(watch):
            case StoreRefused() as refused:
                self._refuse(stream, refused)
            case watcher:
                self._strangers.pop(stream).cancel()
                self._sessions[stream] = watcher
                stream.widen(TO_WATCHED_STORE)
                stream.on_frame = partial(watcher.heard, stream)
                self._beat(stream)
                watcher.begin(stream)

    async def _greet(self, stream: FrameStream, hello: PoolHello) -> None:
        assert self._host is not None
        try:
            async with asyncio.timeout(ADMIT_TIMEOUT_S):
                answer = await self._host.admit_store(hello)
        except TimeoutError:
            answer = StoreRefused(StoreRefusal.FULL, "this store is busy: it can be asked again")
        match answer:
            case StoreRefused():
                self._refuse(stream, answer)
            case (session, welcome):
                self._begin(stream, session, welcome)

    def _begin(self, stream: FrameStream, session: PoolSession, welcome: PoolWelcome) -> None:
        self._strangers.pop(stream, None)
        self._sessions[stream] = session
        try:
            stream.widen(TO_POOLED_STORE)
            stream.on_frame = partial(session.heard, stream)
            stream.send(Kind.POOL_WELCOME, welcome)
        except PeerError:  # it went away meanwhile
            if self._sessions.pop(stream, None) is not None:
                session.over()
            return
        self._beat(stream)
        session.begin(stream)

    def _beat(self, stream: FrameStream) -> None:
        heartbeat_s, lost_after_s = self._config.heartbeat_s, self._config.lost_after_s
        stream.beat(heartbeat_s, lost_after_s, lambda: (Kind.HEARTBEAT, None))

    def _refuse(self, stream: FrameStream, refused: StoreRefused) -> None:
        self._quiet.trouble("a store was refused: %s", refused.message)
        try:
            stream.send(Kind.STORE_REFUSED, refused)
        except PeerError:
            return  # it is gone
        stream.finish(refused.message)

    def _over(self, stream: FrameStream, ending: Ending) -> None:
        if (timer := self._strangers.pop(stream, None)) is not None:
            timer.cancel()
        if (session := self._sessions.pop(stream, None)) is not None:
            if ending.failure is not None:
                whose = f"store {session.peer}" if isinstance(session, PoolSession) else "a gateway"
                self._quiet.warning("the stream of %s: %s", whose, ending.reason)
            session.over()


def _too_early(frame: Frame) -> None:
    raise FrameError(f"a message of kind {frame.kind} came before the welcome")
