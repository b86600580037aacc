"""A region's pages over TCP, for takers on other hosts that were given a key.

    server = PageServer(region, ["tcp://10.0.0.1:0"])
    access = server.admit()            # to the taker, over its control stream
    ...
    server.dismiss(access)             # the control stream is over: so are its connections

One thread listens at all addresses, each connection has one of its own. Who does not prove in time
that it knows a key learns nothing and holds nothing: a bounded number of such connections waits,
and loses its places to those who come after it (`handshake_places`).
"""

import errno
import logging
import select
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from antiphon.core.tcp_endpoint import TcpEndpoint, parse_endpoint
from antiphon.errors import PeerError, UsageError
from antiphon.host import taken_port
from antiphon.store.transfer.region import OwnedRegion
from antiphon.types import DataAccess, Seconds

from .data_keys import DataKeys
from .data_socket import for_bulk
from .handshake_places import HandshakePlaces
from .served_stream import ServedStream
from .warm_up import warm_up_owner

_log = logging.getLogger(__name__)

_BACKLOG = 128
_PAUSE_S: Seconds = 0.1
"""After a taker that could not be let in: most likely there are no descriptors or threads left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What strangers and takers may use of a server."""

    handshake_s: Seconds = 2.0
    handshakes: int = 64
    handshakes_of_one_address: int = 16
    connections: int = 512
    stall_s: Seconds = 10.0
    """A taker that takes nothing for so long, in the middle of a reply, is left."""


class PageServer:
    """Serves `region` from `__init__` to `close`. Any thread may call.

    `endpoints` are its addresses, "tcp://HOST:PORT"; port 0 is any free one. `must_seal`: who wants
    no encryption is refused. `setting`: what chooses the ports, which errors name.
    """

    def __init__(
        self,
        region: OwnedRegion,
        endpoints: Sequence[str],
        *,
        must_seal: bool = False,
        setting: str = "KV",
        limits: ServerLimits = ServerLimits(),
    ) -> None:
        """Raises `UsageError`: an address that is none, or that can't be listened at, as its port
        is taken (it is named by whom) or for another reason; no descriptor or thread is left."""
        self.keys = DataKeys()
        self.keys.on_revoked(self._end_all_of)
        warm_up_owner(region)
        self._region = region
        self._must_seal = must_seal
        self._limits = limits
        self._lock = threading.Lock()
        self._greeting: HandshakePlaces[ServedStream] = HandshakePlaces(
            limits.handshakes, limits.handshakes_of_one_address
        )
        self._streams: set[ServedStream] = set()
        self._ended = Counter[str]()
        self._closed = False
        self._threads: set[threading.Thread] = set()
        self._acceptor = threading.Thread(target=self._accept, name="kv-accept", daemon=True)
        with ExitStack() as unless_made:
            self._listeners = _listening(endpoints, setting)
            for one in self._listeners:
                unless_made.enter_context(one)
            self.endpoints = tuple(str(_endpoint_of(one)) for one in self._listeners)
            try:
                self._bell, self._waker = map(unless_made.enter_context, socket.socketpair())
                self._acceptor.start()
            except OSError as error:
                raise UsageError(
                    f"KV can't be served, {error.strerror}: raise the limit of open files "
                    "(ulimit -n)"
                ) from None
            except RuntimeError as error:
                raise UsageError(
                    f"KV can't be served, {error}: raise the limit of threads (ulimit -u, pids.max)"
                ) from None
            unless_made.pop_all()

    def admit(self) -> DataAccess:
        """A key for one more taker."""
        key_id, key = self.keys.new()
        return DataAccess(endpoints=self.endpoints, key_id=key_id, key=key, sealed=self._must_seal)

    def dismiss(self, access: DataAccess) -> None:
        """The taker is gone, or not trusted any more: its key opens nothing from now on."""
        self.keys.revoke(access.key_id)

    def counts(self) -> dict[str, int]:
        """Connections now; pages and bytes sent, pages that were not what was asked for, and
        strangers turned away, so far."""
        with self._lock:
            sums = Counter(self._ended)
            for stream in self._streams:
                _add(sums, stream)
            return {
                "connections": len(self._streams),
                **{name: sums[name] for name in ("pages", "bytes", "refused_pages", "strangers")},
            }

    def close(self) -> None:
        """End everything; returns when no page is read any more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            streams = [*self._streams, *self._greeting]
        self._waker.send(b".")
        for stream in streams:
            stream.close()
        self._acceptor.join()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()
        for one in (self._bell, self._waker):
            one.close()

    # ── on threads ───────────────────────────────────────────────────────────────────────────

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            for one in (self._bell, *self._listeners):
                selector.register(one, selectors.EVENT_READ)
            while not self._closed:
                for key, _ in selector.select():
                    listener = key.fileobj
                    if isinstance(listener, socket.socket) and listener is not self._bell:
                        self._come_in(listener)
        for one in self._listeners:
            one.close()

    def _come_in(self, listener: socket.socket) -> None:
        try:
            connection, where = listener.accept()
        except OSError as error:  # it is gone again, or we have no descriptors left
            self._could_not(error)
            return
        stream = ServedStream(connection, self._region, stall_s=self._limits.stall_s)
        thread = threading.Thread(
            target=self._serve, args=(connection, stream), name="kv-serve", daemon=True
        )
        with self._lock:
            full = len(self._streams) >= self._limits.connections
            full |= len(self._threads) >= self._limits.connections + 2 * self._limits.handshakes
            if self._closed or full:
                self._ended["strangers"] += 1
                connection.close()
                return
            goes = self._greeting.enter(stream, where[0])
            self._ended["strangers"] += goes is not None
            self._threads.add(thread)
        if goes is not None:
            goes.close()
        try:
            thread.start()
        except RuntimeError as error:  # no threads left
            with self._lock:
                self._greeting.leave(stream)
                self._threads.discard(thread)
            connection.close()
            self._could_not(error)

    def _could_not(self, error: Exception) -> None:
        """Somebody could not come in. Others can later."""
        _log.debug("a taker could not come in: %s", error)
        select.select([self._bell], [], [], _PAUSE_S)

    def _serve(self, connection: socket.socket, stream: ServedStream) -> None:
        """All of one connection, which is closed at the end."""
        try:
            for_bulk(connection)
            stream.greet(self.keys.key, self._limits.handshake_s, must_seal=self._must_seal)
            if self._known(stream):
                stream.run()
        except (PeerError, OSError) as error:
            _log.debug("a taker's connection is over: %s", error)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
                self._ended["strangers"] += self._greeting.leave(stream)
                self._streams.discard(stream)
                _add(self._ended, stream)
            connection.close()

    def _known(self, stream: ServedStream) -> bool:
        """It has proven itself; False: its key was revoked meanwhile, this is closed, or
        its place was somebody else's already."""
        assert stream.session is not None
        with self._lock:
            shut = self._closed or not self._greeting.leave(stream)
            if not shut:
                self._streams.add(stream)
        return not shut and self.keys.key(stream.session.key_id) is not None

    def _end_all_of(self, key_id: bytes) -> None:
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            if stream.session is not None and stream.session.key_id == key_id:
                stream.close()


def _add(sums: Counter[str], stream: ServedStream) -> None:
    for name, count in zip(("pages", "bytes", "refused_pages"), stream.counts, strict=True):
        sums[name] += int(count)


def _listening(endpoints: Sequence[str], setting: str) -> list[socket.socket]:
    """A listener each, or none at all."""
    listeners: list[socket.socket] = []
    try:
        for text in endpoints:
            endpoint = parse_endpoint(text)
            if endpoint is None:
                raise UsageError(f"{text!r} is no address for KV: expected tcp://HOST:PORT")
            listeners.append(_listener(endpoint, setting))
    except BaseException:
        for one in listeners:
            one.close()
        raise
    return listeners


def _listener(endpoint: TcpEndpoint, setting: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    try:
        listener = socket.create_server(
            (endpoint.host, endpoint.port), family=family, backlog=_BACKLOG
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"{setting}: {taken_port(endpoint.host, endpoint.port)}") from None
        raise UsageError(f"{setting}: can't listen on {endpoint}: {error}") from None
    listener.setblocking(False)
    return listener


def _endpoint_of(listener: socket.socket) -> TcpEndpoint:
    host, port = listener.getsockname()[:2]
    return TcpEndpoint(host, port)
