"""A taker's end of its stream to one life of one owner: see `peer_port`.

It connects when it is first used, and again when a connection that had been idle is found dead. A
peer's failure stays its own: every call ends in time, with an answer or a `PeerError`.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from antiphon.core.joining import same_pages
from antiphon.errors import PeerError
from antiphon.types import (
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    PeerHello,
    PeerRefusal,
    PeerRefused,
    PeerWelcome,
    RenewTaken,
    Seconds,
    TakenLease,
)
from antiphon.wire import (
    TO_TAKER,
    Calls,
    Ending,
    FrameError,
    FrameStream,
    Kind,
    decode,
    encode,
    owned_by_loop,
)

from .descriptors import first_frame

_LEASES_A_MESSAGE = 1000
_HELD_OR_REFUSED = (Kind.LEASE_HELD, Kind.LEASE_REFUSED)


class PeerClient:
    """Calls to the owner that `hello` names, which has its data socket at `path`.

    `on_memory` gets the file descriptor of the owner's memory and the owner's shape, once, before
    the first call is answered. The descriptor is its own from then on; it must check what it is
    given, and may raise `PeerError`. If the owner's life is over, all calls answer `GONE`.
    `on_over` is called whenever the stream to the owner ends, whoever ended it.
    """

    def __init__(
        self,
        path: Path,
        hello: PeerHello,
        *,
        on_memory: Callable[[int, KvShape], None],
        clock: Callable[[], Seconds],
        timeout_s: Seconds = 2.0,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._hello = replace(hello, descriptor=True)
        self._on_memory = on_memory
        self._clock = clock
        self._timeout_s = timeout_s
        self._on_over = on_over
        self._stream: FrameStream | None = None
        self._calls: Calls | None = None
        self._opening: asyncio.Task[None] | None = None
        self._gone = False
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether its stream to the owner lives."""
        return self._stream is not None and self._stream.ending is None

    async def open(self) -> bool:
        """Connect and get the memory, if that is still to do. False: the owner's life is over."""
        try:
            await self._opened()
        except _GoneError:
            return False
        return True

    async def take(self, lease: LeaseId, attempt: int) -> LeaseHeld | LeaseRefused:
        """Begin to read. Raises `PeerError`, as the others."""
        return await self._ask(Kind.TAKE, lease, attempt)

    async def acknowledge(self, lease: LeaseId, attempt: int) -> LeaseHeld | LeaseRefused:
        """All that is wanted was read: the lease may end."""
        return await self._ask(Kind.ACKNOWLEDGE, lease, attempt)

    async def renew(self, leases: Sequence[LeaseId]) -> Sequence[LeaseRefused]:
        """These are still read. Returns those that the owner does not keep any more."""
        refused: list[LeaseRefused] = []
        for start in range(0, len(leases), _LEASES_A_MESSAGE):
            part = tuple(leases[start : start + _LEASES_A_MESSAGE])
            try:
                answer = await self._call(
                    Kind.RENEW_TAKEN, RenewTaken(part), (Kind.RENEW_ANSWERED,)
                )
                refused += answer.refused
            except _GoneError:
                refused += (LeaseRefused(lease, LeaseRefusal.GONE) for lease in part)
        return refused

    def close(self) -> None:
        """End the stream; calls raise `PeerError` from now on."""
        self._closed = True
        if self._stream is not None:
            self._stream.end("closed here")

    async def _ask(self, kind: Kind, lease: LeaseId, attempt: int) -> LeaseHeld | LeaseRefused:
        try:
            return await self._call(kind, TakenLease(lease, attempt), _HELD_OR_REFUSED, lease)
        except _GoneError:
            return LeaseRefused(lease, LeaseRefusal.GONE)

    async def _call(
        self, kind: Kind, message: object, answers: tuple[Kind, ...], about: str = ""
    ) -> Any:
        """All that is asked may be asked twice, so a stream that was found dead is no failure."""
        before = self._stream
        calls = await self._opened()
        stream = self._stream
        try:
            return await calls.call(kind, message, answers, about)
        except PeerError:
            if stream is not before or stream is None or stream.ending is None:
                raise
        return await (await self._opened()).call(kind, message, answers, about)

    # ── connecting ───────────────────────────────────────────────────────────────────────────

    async def _opened(self) -> Calls:
        """The calls of a stream that lives. Whoever comes while it is opened waits for the same."""
        while self._stream is None or self._calls is None or self._stream.ending is not None:
            if self._closed:
                raise PeerError(f"{self._who} is not asked any more")
            if self._gone:
                raise _GoneError(f"the life of {self._who} is over")
            if self._opening is None:
                self._opening = asyncio.create_task(self._open())
                self._opening.add_done_callback(self._opened_or_not)
            await asyncio.shield(self._opening)
        return self._calls

    def _opened_or_not(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                self._stream, self._calls = await self._connect()
        except TimeoutError:
            raise PeerError(f"{self._who} said no welcome within {self._timeout_s} s") from None
        except OSError as error:
            raise PeerError(f"{self._who} can't be reached: {error}") from None
        if self._closed:
            self._stream.end("closed here")

    @property
    def _who(self) -> str:
        return f"owner {self._hello.owner}"

    async def _connect(self) -> tuple[FrameStream, Calls]:
        loop = asyncio.get_running_loop()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await loop.sock_connect(connection, os.fspath(self._path))
            await loop.sock_sendall(connection, encode(Kind.PEER_HELLO, self._hello))
            await self._welcomed(connection)
            stream = FrameStream(TO_TAKER, clock=self._clock)
            calls = Calls(stream, self._who, timeout_s=self._timeout_s)
            stream.on_frame = calls.answered
            stream.on_end = partial(self._over, calls)
            with owned_by_loop(connection):
                await loop.create_unix_connection(lambda: stream, sock=connection)
        except BaseException:
            connection.close()
            raise
        return stream, calls

    def _over(self, calls: Calls, ending: Ending) -> None:
        calls.fail(ending.reason)
        self._on_over()

    async def _welcomed(self, connection: socket.socket) -> None:
        """Reads the answer to the hello. Every descriptor that came is passed on or closed."""
        descriptors: list[int] = []
        try:
            frame = await first_frame(connection, TO_TAKER, descriptors, alone=True)
            if frame is None:
                raise PeerError("the owner went away before it answered the hello")
            match decode(frame):
                case PeerRefused(PeerRefusal.GONE, message):
                    self._gone = True
                    raise _GoneError(message)
                case PeerRefused(_, message):
                    raise PeerError(f"{self._who} refuses: {message}")
                case PeerWelcome(kv):
                    self._check(kv, descriptors)
                    if descriptors:
                        self._on_memory(descriptors.pop(), kv)
                        self._hello = replace(self._hello, descriptor=False)
                case _:
                    raise FrameError(f"{self._who} did not answer the hello first")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _check(self, kv: KvShape, descriptors: Sequence[int]) -> None:
        if not same_pages(kv, self._hello.kv):
            raise FrameError(f"pages of {self._who} are {kv}")
        if len(descriptors) != int(self._hello.descriptor):
            raise FrameError(f"{self._who} sent {len(descriptors)} descriptors")


class _GoneError(PeerError):
    """The owner's life is over: nothing that it offered can be had."""
