"""The remote tier: records of blocks in somebody else's store, over the network.

A foreign system is an adapter that moves opaque values (`RemoteValues`); what the values are, and
whether they may be believed, is decided here (`RemoteTier`). Whatever is wrong is a miss.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from antiphon.types import BlockKey, Seconds, TierStats

from .disk import Page
from .record import KvOrigin, RecordedBlock

Buffer: TypeAlias = "bytes | bytearray | memoryview"


@dataclass(frozen=True, slots=True)
class RemoteFailed:
    """The foreign system could not be asked. `why` is for the log."""

    why: str


class RemoteValues(Protocol):
    """What an adapter implements. Calls block; one runs at a time; each ends by itself soon after
    its time is up. Values are opaque; one that was not kept, or went, is absent."""

    def exists(self, names: Sequence[bytes], timeout_s: Seconds) -> Sequence[bool] | RemoteFailed:
        """For each name: is there a value?"""
        ...

    def get(
        self, names: Sequence[bytes], timeout_s: Seconds
    ) -> Sequence[bytes | None] | RemoteFailed:
        """For each name: its value."""
        ...

    def put(
        self, values: Sequence[tuple[bytes, Sequence[Buffer]]], timeout_s: Seconds
    ) -> Sequence[bool] | RemoteFailed:
        """For each (name, parts of the value): was it kept?"""
        ...

    def close(self) -> None:
        """Give connections back; ends a call that runs on another thread."""
        ...


class RemoteTier:
    """Blocks of one origin in a foreign system, verified, under deadlines, behind a breaker.

    Calls block, for at most the timeout; call them from threads of your own.
    """

    def __init__(
        self,
        values: RemoteValues,
        origin: KvOrigin,
        *,
        timeout_s: Seconds = 0.5,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        raise NotImplementedError

    def present(self, keys: Sequence[BlockKey]) -> int:
        """How many of `keys`, from the first on without a gap, are there; 0 if it can't be said."""
        raise NotImplementedError

    def get(self, keys: Sequence[BlockKey], into: Sequence[Sequence[Page]]) -> tuple[bool, ...]:
        """Read block i into the pages `into[i]`; which of them hold it now, verified."""
        raise NotImplementedError

    def put(
        self,
        blocks: Sequence[tuple[RecordedBlock, Sequence[Page], Sequence[int]]],
    ) -> tuple[bool, ...]:
        """Keep blocks (with their pages' checksums, as for `DiskTier.append`); which were kept."""
        raise NotImplementedError

    def stats(self) -> TierStats:
        """Counts; what is there is unknown: `blocks`, `used_bytes` and `limit_bytes` are 0."""
        raise NotImplementedError

    def close(self) -> None:
        """End what runs; later calls miss."""
        raise NotImplementedError
