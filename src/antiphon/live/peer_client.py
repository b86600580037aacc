"""A taker's end of its stream to one life of one owner, on this host or another: see `peer_port`.

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

from antiphon.core.data_access import wrong_in_access
from antiphon.core.joining import same_pages
from antiphon.errors import PeerError, UsageError
from antiphon.types import (
    DataAccess,
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
    Frame,
    FrameError,
    FrameStream,
    Kind,
    decode,
    encode,
    owned_by_loop,
)

from .descriptors import first_frame
from .network import Address, TlsAddress, dial

_LEASES_A_MESSAGE = 1000
_HELD_OR_REFUSED = (Kind.LEASE_HELD, Kind.LEASE_REFUSED)


class PeerClient:
    """Calls to the owner that `hello` names, which is reached at `address`.

    `on_memory` gets the file descriptor of the owner's memory and the owner's shape, once, before
    the first call is answered. The descriptor is its own from then on; it must check what it is
    given, and may raise `PeerError`. From another host no memory comes: at each connection
    `on_access` gets what opens the owner's data socket until that connection ends. If the owner's
    life is over, all calls answer `GONE`. `on_over` is called whenever the stream to the owner
    ends, whoever ended it.
    """

    def __init__(
        self,
        address: Address,
        hello: PeerHello,
        *,
        on_memory: Callable[[int, KvShape], None],
        clock: Callable[[], Seconds],
        timeout_s: Seconds = 2.0,
        on_over: Callable[[], None] = lambda: None,
        on_access: Callable[[DataAccess], None] = lambda access: None,
    ) -> None:
        self._address = address
        self._on_access = on_access
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
        if isinstance(self._address, Path):
            return await self._connect_here(self._address)
        return await self._connect_there(self._address)

    async def _connect_here(self, path: Path) -> tuple[FrameStream, Calls]:
        loop = asyncio.get_running_loop()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await loop.sock_connect(connection, os.fspath(path))
            await loop.sock_sendall(connection, encode(Kind.PEER_HELLO, self._hello))
            await self._welcomed(connection)
            stream = FrameStream(TO_TAKER, clock=self._clock)
            calls = self._calls_over(stream)
            with owned_by_loop(connection):
                await loop.create_unix_connection(lambda: stream, sock=connection)
        except BaseException:
            connection.close()
            raise
        return stream, calls

    def _calls_over(self, stream: FrameStream) -> Calls:
        calls = Calls(stream, self._who, timeout_s=self._timeout_s)
        stream.on_frame = calls.answered
        stream.on_end = partial(self._over, calls)
        return calls

    async def _connect_there(self, address: TlsAddress) -> tuple[FrameStream, Calls]:
        stream = FrameStream(TO_TAKER, clock=self._clock)
        first = _FirstFrame(stream)
        try:
            await dial(stream, address, self._timeout_s)
            stream.send(Kind.PEER_HELLO, replace(self._hello, descriptor=False))
            access = self._admitted(await first.frame)
            if stream.ending is not None:
                raise PeerError(stream.ending.reason)
        except UsageError as error:
            stream.end("it was not welcomed")
            raise PeerError(str(error)) from None
        except BaseException:
            stream.end("it was not welcomed")
            raise
        calls = self._calls_over(stream)
        if not self._closed:
            self._on_access(access)
        return stream, calls

    def _admitted(self, frame: Frame) -> DataAccess:
        """What an owner on another host answers to the hello."""
        kv, access = self._answered(frame)
        if not same_pages(kv, self._hello.kv):
            raise FrameError(f"pages of {self._who} are {kv}")
        if access is None:
            raise FrameError(f"{self._who} says nothing that opens its data socket")
        if problem := wrong_in_access(access):
            raise FrameError(f"{self._who} says what can't open its data socket: {problem}")
        if access.memory is not None and not self._hello.nixl:
            raise FrameError(f"{self._who} says where NIXL reads it, which nobody has asked")
        return access

    def _answered(self, frame: Frame) -> tuple[KvShape, DataAccess | None]:
        match decode(frame):
            case PeerRefused(PeerRefusal.GONE, message):
                self._gone = True
                raise _GoneError(message)
            case PeerRefused(_, message):
                raise PeerError(f"{self._who} refuses: {message}")
            case PeerWelcome(kv, access):
                return kv, access
            case _:
                raise FrameError(f"{self._who} did not answer the hello first")

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
            kv, _ = self._answered(frame)
            self._check(kv, descriptors)
            if descriptors:
                self._on_memory(descriptors.pop(), kv)
                self._hello = replace(self._hello, descriptor=False)
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


class _FirstFrame:
    """The first that comes on a stream, or the `PeerError` that none will. More may not come."""

    def __init__(self, stream: FrameStream) -> None:
        self.frame: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.frame.add_done_callback(lambda done: done.cancelled() or done.exception())
        stream.on_frame, stream.on_end = self._heard, self._over

    def _heard(self, frame: Frame) -> None:
        if self.frame.done():
            raise FrameError("more came than was asked for")
        self.frame.set_result(frame)

    def _over(self, ending: Ending) -> None:
        if not self.frame.done():
            self.frame.set_exception(PeerError(ending.reason))
