"""A relay between a worker and its gateway that does to messages what no socket does.

A Unix stream neither drops nor repeats nor reorders. Whoever relies on that should be seen to rely
on no more: put this between the two, and let a plan decide about each message.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeAlias

from .relay import Relay

HEADER_BYTES = 10
"""See `wire.frame`. The relay reads lengths and kinds, and is not part of the protocol."""


class Way(StrEnum):
    """Which way a message goes."""

    TO_GATEWAY = "to gateway"
    TO_WORKER = "to worker"


@dataclass(frozen=True, slots=True)
class Passing:
    """A message on its way: the `number`-th (from 0) of its way in all connections so far."""

    way: Way
    number: int
    kind: int
    size: int


@dataclass(frozen=True, slots=True)
class Pass:
    """Pass it on, in pieces of `piece_bytes` (0: whole)."""

    piece_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """It never was."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """It comes twice."""


@dataclass(frozen=True, slots=True)
class Delay:
    """It, and what comes behind it, is late."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """So many bytes of it, and then the connection is closed."""

    after_bytes: int


Fault: TypeAlias = Pass | Drop | Duplicate | Delay | Cut


class FaultyRelay:
    """Listens at `path` from `start` to `close`, and passes each connection on to `target`.

    `plan` is asked about every message; `done` lists what was done other than to pass it on.
    """

    def __init__(self, path: Path, target: Path, plan: Callable[[Passing], Fault]) -> None:
        self.done: list[tuple[Passing, Fault]] = []
        self._path = path
        self._plan = plan
        self._numbers = dict.fromkeys(Way, 0)
        self._relay = Relay(lambda: asyncio.open_unix_connection(target), lambda: self._pass_on)

    async def start(self) -> None:
        """Let connections in."""
        await self._relay.start(partial(asyncio.start_unix_server, path=self._path))

    async def close(self) -> None:
        """Break all connections."""
        await self._relay.close()

    async def _pass_on(
        self, to_gateway: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Returns when one side is gone, or the plan said so."""
        way = Way.TO_GATEWAY if to_gateway else Way.TO_WORKER
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readexactly(HEADER_BYTES)
                frame = head + await reader.readexactly(int.from_bytes(head[:4], "big"))
                passing = Passing(way, self._numbers[way], head[5], len(frame))
                self._numbers[way] += 1
                fault = self._plan(passing)
                if fault != Pass():
                    self.done.append((passing, fault))
                if not await self._do(fault, frame, writer):
                    return

    async def _do(self, fault: Fault, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        match fault:
            case Pass(piece_bytes):
                size = piece_bytes or len(frame)
                for start in range(0, len(frame), size):
                    writer.write(frame[start : start + size])
                    await writer.drain()
                    await asyncio.sleep(0)
            case Drop():
                pass
            case Duplicate():
                writer.write(frame + frame)
                await writer.drain()
            case Delay(seconds):
                await asyncio.sleep(seconds)
                writer.write(frame)
            case Cut(after_bytes):
                writer.write(frame[:after_bytes])
                await writer.drain()
                return False
        return True
