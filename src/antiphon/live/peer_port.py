"""The owner's end of its streams to other workers: its memory, and who may read what.

    taker ── PeerHello(owner's life, shape, descriptor?) ──► owner
          ◄── PeerWelcome, and on it the file descriptor of the owner's memory; or PeerRefused
          ── take, renew, acknowledge ──► LeaseBook ──► held, refused

Takers on other hosts come over TLS; no memory of this host can be theirs: they get a key to its
data socket instead (`DataAccess`), and may be told where NIXL reads the pages. One stream a taker,
and each on its own: what happens on one touches no other (see `door`).
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from antiphon.core.joining import same_pages
from antiphon.errors import PeerError
from antiphon.types import (
    DataAccess,
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    PeerHello,
    PeerRefusal,
    PeerRefused,
    PeerWelcome,
    RemoteMemory,
    RenewAnswered,
    RenewTaken,
    Seconds,
    TakenLease,
    WorkerInfo,
)
from antiphon.wire import (
    FROM_STRANGE_TAKERS,
    TO_OWNER,
    Ending,
    Frame,
    FrameError,
    FrameReader,
    FrameStream,
    Kind,
    OtherVersionError,
    QuietLog,
    decode,
    encode,
)

from .descriptors import send_all_at_once
from .door import HELLO_TIMEOUT_S, Door
from .network import TlsDoor, may_speak_for

MAX_PEERS = 512
MAX_STRANGERS = 64
"""Takers on other hosts that may be about to say hello."""
_READ_BYTES = 64 * 2**10

_log = logging.getLogger(__name__)


class TakenLeases(Protocol):
    """What an owner answers to takers (see `core.handover.LeaseBook`). Nothing here waits."""

    def take(self, lease: LeaseId, taker: Incarnation, attempt: int) -> LeaseHeld | LeaseRefused:
        """The taker begins to read. May be repeated."""
        ...

    def renew_taken(
        self, leases: Sequence[LeaseId], taker: Incarnation
    ) -> Sequence[LeaseHeld | LeaseRefused]:
        """The taker still reads these; one answer each."""
        ...

    def acknowledge(
        self, lease: LeaseId, taker: Incarnation, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        """The taker has what it wants: the lease ends."""
        ...


class DataServer(Protocol):
    """Who serves an owner's pages to takers that can't map them."""

    def admit(self) -> DataAccess:
        """A key for one more taker."""
        ...

    def dismiss(self, access: DataAccess) -> None:
        """The taker is gone: its key opens nothing any more."""
        ...


class PeerPort:
    """Listens from `start` to `close`.

    `owner` says who this worker is now: a hello for another life is refused. `descriptor` is its
    memory's; it stays the caller's.
    """

    def __init__(
        self,
        path: Path,
        *,
        owner: Callable[[], WorkerInfo],
        descriptor: int,
        leases: TakenLeases,
        clock: Callable[[], Seconds],
    ) -> None:
        self._owner = owner
        self._descriptor = descriptor
        self._leases = leases
        self._clock = clock
        self._quiet = QuietLog(_log, clock)
        self._peers: set[FrameStream] = set()
        self._door = Door(path, self._greet, clock=clock)
        self._strangers: set[FrameStream] = set()
        self._tls: TlsDoor | None = None
        self._data: DataServer | None = None
        self._memory: RemoteMemory | None = None

    @property
    def peers(self) -> int:
        """Streams that live."""
        return len(self._peers)

    def open_to_hosts(
        self,
        listeners: Sequence[socket.socket],
        context: ssl.SSLContext,
        data: DataServer,
        memory: RemoteMemory | None = None,
    ) -> None:
        """From `start` on takers of other hosts may come too. The listeners are its own. `memory`
        is told to those that ask for it."""
        self._tls = TlsDoor(listeners, context, self._stranger, clock=self._clock)
        self._data = data
        self._memory = memory

    async def start(self) -> None:
        """Open the door. Raises `UsageError` if the folder or the path will not do."""
        await self._door.start()
        if self._tls is not None:
            self._tls.start()

    async def close(self) -> None:
        """End all streams and let nobody in any more."""
        await self._door.close()
        if self._tls is not None:
            await self._tls.close()
        self.new_life("the worker is shutting down")

    def new_life(self, reason: str = "the owner has begun a new life") -> None:
        """What was said to the old life is over: end all streams."""
        for stream in [*self._strangers, *self._peers]:
            stream.end(reason)

    async def _greet(self, connection: socket.socket) -> None:
        """Owns the connection until a stream does."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello = await self._hello(connection)
        except OtherVersionError as error:
            self._refuse(connection, _other_version(error))
            return
        if refused := self._objection(hello):
            self._quiet.trouble("taker %.80s was refused: %s", hello.taker, refused.message)
            self._refuse(connection, refused)
            return
        await self._begin(connection, hello)

    def _refuse(self, connection: socket.socket, refused: PeerRefused) -> None:
        self._say(connection, Kind.PEER_REFUSED, refused)
        connection.close()

    async def _hello(self, connection: socket.socket) -> PeerHello:
        reader = FrameReader(FROM_STRANGE_TAKERS)
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(connection, _READ_BYTES):
            if frame := reader.feed_one(data):
                return decode(frame)
        raise PeerError("it went away before it said hello")

    def _objection(self, hello: PeerHello) -> PeerRefused | None:
        info = self._owner()
        if (hello.owner, hello.owner_incarnation) != (info.id, info.incarnation):
            return PeerRefused(PeerRefusal.GONE, f"this is {info.id} in life {info.incarnation}")
        if info.kv is None or not same_pages(info.kv, hello.kv):
            return PeerRefused(PeerRefusal.KV_SHAPE, f"pages here are {info.kv}")
        if len(self._peers) >= MAX_PEERS:
            return PeerRefused(PeerRefusal.FULL, f"{MAX_PEERS} takers are here")
        return None

    async def _begin(self, connection: socket.socket, hello: PeerHello) -> None:
        info = self._owner()
        assert info.kv is not None
        descriptors = (self._descriptor,) if hello.descriptor else ()
        self._say(connection, Kind.PEER_WELCOME, PeerWelcome(info.kv), descriptors)
        stream = FrameStream(TO_OWNER, clock=self._clock)
        stream.on_frame = partial(self._asked, stream, hello.incarnation)
        stream.on_end = partial(self._left, stream, hello)
        self._peers.add(stream)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: stream, connection)
        except (OSError, asyncio.CancelledError):
            stream.end("it went away at once")
            raise

    # ── takers on other hosts ────────────────────────────────────────────────────────────────

    def _stranger(self) -> FrameStream:
        stream = FrameStream(FROM_STRANGE_TAKERS, clock=self._clock)
        if len(self._strangers) >= MAX_STRANGERS:
            stream.end("too many takers are about to say hello")
            return stream
        loop = asyncio.get_running_loop()
        late = loop.call_later(HELLO_TIMEOUT_S, stream.end, "it said no hello in time")
        self._strangers.add(stream)
        stream.on_frame = partial(self._introduced, stream, late)
        stream.on_end = partial(self._no_taker, stream, late)
        stream.last_words = _refuse_version
        return stream

    def _no_taker(self, stream: FrameStream, late: asyncio.TimerHandle, ending: Ending) -> None:
        late.cancel()
        self._strangers.discard(stream)
        self._quiet.warning("who came from another host did not get in: %s", ending.reason)

    def _introduced(self, stream: FrameStream, late: asyncio.TimerHandle, frame: Frame) -> None:
        hello: PeerHello = decode(frame)
        refused = self._objection(hello)
        if not may_speak_for(stream.peer_names or (), hello.taker):
            said = f"{hello.taker!r:.80} is not a worker on the host of its certificate"
            refused = PeerRefused(PeerRefusal.HOST, said)
        if refused is not None:
            stream.send(Kind.PEER_REFUSED, refused)
            stream.finish(f"taker {hello.taker!r:.80} was refused: {refused.message}")
            return
        late.cancel()
        self._strangers.discard(stream)
        self._take_in(stream, hello)

    def _take_in(self, stream: FrameStream, hello: PeerHello) -> None:
        info = self._owner()
        assert info.kv is not None
        assert self._data is not None
        access = self._data.admit()
        stream.widen(TO_OWNER)
        stream.last_words = lambda _: b""
        stream.on_frame = partial(self._asked, stream, hello.incarnation)
        stream.on_end = partial(self._left_with_key, stream, hello, access)
        self._peers.add(stream)
        told = replace(access, memory=self._memory) if hello.nixl else access
        stream.send(Kind.PEER_WELCOME, PeerWelcome(info.kv, told))

    def _left_with_key(
        self, stream: FrameStream, hello: PeerHello, access: DataAccess, ending: Ending
    ) -> None:
        assert self._data is not None
        self._data.dismiss(access)
        self._left(stream, hello, ending)

    @staticmethod
    def _say(
        connection: socket.socket, kind: Kind, message: object, descriptors: Sequence[int] = ()
    ) -> None:
        """A few bytes, which an empty socket always takes."""
        send_all_at_once(connection, encode(kind, message), list(descriptors))

    def _left(self, stream: FrameStream, hello: PeerHello, ending: Ending) -> None:
        self._peers.discard(stream)
        if ending.failure is not None:
            self._quiet.warning("the stream of taker %s is over: %s", hello.taker, ending.reason)

    def _asked(self, stream: FrameStream, taker: Incarnation, frame: Frame) -> None:
        match decode(frame):
            case TakenLease(lease, attempt) if frame.kind == Kind.TAKE:
                answer = self._leases.take(lease, taker, attempt)
            case TakenLease(lease, attempt):
                answer = self._leases.acknowledge(lease, taker, attempt)
            case RenewTaken(leases):
                answers = self._leases.renew_taken(leases, taker)
                refused = tuple(one for one in answers if isinstance(one, LeaseRefused))
                stream.send(Kind.RENEW_ANSWERED, RenewAnswered(refused), frame.number)
                return
            case _:
                raise FrameError("it said hello twice")
        held = isinstance(answer, LeaseHeld)
        stream.send(Kind.LEASE_HELD if held else Kind.LEASE_REFUSED, answer, frame.number)


def _refuse_version(error: FrameError) -> bytes:
    if not isinstance(error, OtherVersionError):
        return b""
    return encode(Kind.PEER_REFUSED, _other_version(error))


def _other_version(error: FrameError) -> PeerRefused:
    return PeerRefused(PeerRefusal.PROTOCOL, f"at the owner: {error}")
