"""The store's socket: who comes in, as what, and what rides on the first message.

    worker ── StoreHello, and on it the descriptor of its memory ──► store
           ◄── StoreWelcome, and on it the descriptor of the store's memory; or StoreRefused
    gateway ── StoreWatch ──► store ── KvDump, KvEvents … ──►

Each caller has a stream of its own, and what happens on one touches no other (see `live.door`).
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from antiphon.errors import PeerError
from antiphon.live.descriptors import first_frame, send_all_at_once
from antiphon.live.door import HELLO_TIMEOUT_S, Door
from antiphon.types import (
    Seconds,
    StoreHello,
    StoreRefusal,
    StoreRefused,
    StoreWatch,
    StoreWelcome,
)
from antiphon.wire import (
    FROM_STRANGE_CALLERS,
    TO_STORE,
    Ending,
    Frame,
    FrameStream,
    Kind,
    OtherVersionError,
    QuietLog,
    decode,
    encode,
)

ADMIT_TIMEOUT_S = 60.0
"""How long a worker's memory may take to be mapped: about 0.1 s a GiB."""

_log = logging.getLogger(__name__)


class Caller(Protocol):
    """What the store does with one stream."""

    def begin(self, stream: FrameStream) -> None:
        """The stream is open: from now on it can be written to."""
        ...

    def heard(self, stream: FrameStream, frame: Frame) -> None:
        """One message came. Raises `FrameError` if it may not."""
        ...

    def over(self) -> None:
        """The stream is over, or never was opened: let go of all that is the caller's. Once."""
        ...


class Host(Protocol):
    """Who decides about callers."""

    async def admit(
        self, hello: StoreHello, descriptor: int
    ) -> StoreRefused | tuple[Caller, StoreWelcome, int]:
        """A worker asks; the descriptor is the caller's. The last is that of the store's memory,
        which stays the host's."""
        ...

    def watch(self, watch: StoreWatch) -> StoreRefused | Caller:
        """A gateway asks."""
        ...


class StorePort:
    """Listens from `start` to `close`. Every `heartbeat_s` both sides say that they live."""

    def __init__(
        self,
        path: Path,
        host: Host,
        *,
        heartbeat_s: Seconds,
        lost_after_s: Seconds,
        clock: Callable[[], Seconds],
    ) -> None:
        self._host = host
        self._heartbeat_s = heartbeat_s
        self._lost_after_s = lost_after_s
        self._clock = clock
        self._quiet = QuietLog(_log, clock)
        self._streams: dict[FrameStream, None] = {}
        self._door = Door(path, self._greet, clock=clock)

    @property
    def callers(self) -> int:
        """Streams that live."""
        return len(self._streams)

    async def start(self) -> None:
        """Open the door. Raises `UsageError` if the folder or the path will not do."""
        await self._door.start()

    async def close(self) -> None:
        """End all streams and let nobody in any more."""
        await self._door.close()
        for stream in list(self._streams):
            stream.end("the store is shutting down")

    async def _greet(self, connection: socket.socket) -> None:
        """Owns the connection until a stream does."""
        descriptors: list[int] = []
        try:
            await self._introduced(connection, descriptors)
        except OtherVersionError as error:
            wrong = f"at the store: {error}: run both from one version"
            self._refuse(connection, StoreRefused(StoreRefusal.PROTOCOL, wrong))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    async def _introduced(self, connection: socket.socket, descriptors: list[int]) -> None:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            frame = await first_frame(connection, FROM_STRANGE_CALLERS, descriptors)
        if frame is None:
            raise PeerError("it went away before it said hello")
        match decode(frame):
            case StoreHello() as hello if len(descriptors) == 1:
                async with asyncio.timeout(ADMIT_TIMEOUT_S):
                    answer = await self._host.admit(hello, descriptors[0])
                match answer:
                    case StoreRefused():
                        self._refuse(connection, answer)
                    case (caller, welcome, memory):
                        first = encode(Kind.STORE_WELCOME, welcome)
                        await self._begin(connection, caller, first, (memory,))
            case StoreWatch() as watch if not descriptors:
                match self._host.watch(watch):
                    case StoreRefused() as refused:
                        self._refuse(connection, refused)
                    case caller:
                        await self._begin(connection, caller)
            case _:
                wrong = f"{len(descriptors)} file descriptors came with the hello"
                remedy = "a worker sends its memory's, a gateway none"
                self._refuse(connection, StoreRefused(StoreRefusal.INVALID, f"{wrong}: {remedy}"))

    def _refuse(self, connection: socket.socket, refused: StoreRefused) -> None:
        self._quiet.trouble("a caller was refused: %s", refused.message)
        try:
            send_all_at_once(connection, encode(Kind.STORE_REFUSED, refused), [])
        except (OSError, PeerError) as error:
            self._quiet.warning("and did not hear it: %s", error)
        connection.close()

    async def _begin(
        self,
        connection: socket.socket,
        caller: Caller,
        first: bytes = b"",
        descriptors: Sequence[int] = (),
    ) -> None:
        stream = FrameStream(TO_STORE, clock=self._clock, answers=True)
        stream.on_frame = partial(caller.heard, stream)
        stream.on_end = partial(self._over, stream, caller)
        self._streams[stream] = None
        try:
            if first:
                send_all_at_once(connection, first, list(descriptors))
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: stream, connection)
        except BaseException:
            stream.end("it went away at once")
            raise
        stream.beat(self._heartbeat_s, self._lost_after_s, lambda: (Kind.HEARTBEAT, None))
        if stream.ending is None:
            caller.begin(stream)

    def _over(self, stream: FrameStream, caller: Caller, ending: Ending) -> None:
        del self._streams[stream]
        if ending.failure is not None or ending.stalled:
            self._quiet.warning("a caller's stream is over: %s", ending.reason)
        caller.over()
