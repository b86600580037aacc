"""The remote tier: records of blocks in somebody else's store, over the network.

A foreign system is an adapter that moves opaque values (`RemoteValues`). What the values are, and
whether they may be believed, is decided here (`RemoteTier`). That system being slow, gone, stopped,
full or wrong is a miss within the deadline, and after a few of them nobody asks it for a while.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np

from antiphon.core.tiers.breaker import Breaker
from antiphon.errors import BugError
from antiphon.types import BlockKey, Seconds, Tier, TierStats

from .record import (
    MOST_HEADER_BYTES,
    VERSION,
    KvOrigin,
    Page,
    RecordedBlock,
    RecordHeader,
    all_match,
    check_pages,
    decode_header,
    most_header_bytes,
    new_pages,
    unrecordable,
)
from .record.record_seal import RecordSeal, record_parts
from .remote_values import RemoteValues

Block: TypeAlias = tuple[RecordedBlock, Sequence[Page], Sequence[int]]
"""A block, its pages, and XXH3-64 of each page."""

_T = TypeVar("_T")
_NAMESPACE, _SEALED = b"antiphon:kv:%d:" % VERSION, b"antiphon:sealed-kv:%d:" % VERSION
_FAILURES, _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 3, 1.0, 60.0
_NAMES_AT_ONCE = 512
_MOST_PARTS = 2**20
"""Of all names, each of some hundred: a system that says names without end is wrong."""
_BATCH_BYTES = 32 << 20
"""Values that are in memory on their way at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteVerified:
    """Of the blocks that were to be verified, those that are not there, and those that were wrong
    and are removed. `all_asked` false: the system could not be asked about all of it."""

    absent: tuple[BlockKey, ...]
    wrong: tuple[BlockKey, ...]
    all_asked: bool


class RemoteTier:
    """Blocks of one origin in a foreign system, verified, under deadlines, behind a breaker.

    Calls block, for at most `timeout_s`. They may come from any thread; the system is asked one
    thing at a time, and who finds it busy waits within its own deadline.
    """

    def __init__(
        self,
        values: RemoteValues,
        origin: KvOrigin,
        *,
        seal: RecordSeal | None = None,
        timeout_s: Seconds = 0.5,
        most_value_bytes: int = 512 << 20,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """Asks nothing yet. `most_value_bytes`: larger blocks are not offered. `seal`: values
        are sealed with it, under names of their own."""
        self._values = values
        self._seal = seal
        self._origin = origin if seal is None else seal.origin(origin)
        self._namespace = _NAMESPACE if seal is None else _SEALED + seal.name.hex().encode() + b":"
        self._timeout_s = timeout_s
        self._most_value_bytes = most_value_bytes
        self._clock = clock
        self._breaker = Breaker(
            failures=_FAILURES, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S
        )
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._thread = ThreadPoolExecutor(1, "remote-tier")
        self._running: Future | None = None
        self._closed = False

    def present(self, keys: Sequence[BlockKey], timeout_s: Seconds | None = None) -> int:
        """How many of `keys`, from the first on without a gap, are there; 0 if it can't be said."""
        there = self.exist(keys, timeout_s) or ()
        return next((count for count, is_there in enumerate(there) if not is_there), len(there))

    def exist(
        self, keys: Sequence[BlockKey], timeout_s: Seconds | None = None
    ) -> Sequence[bool] | None:
        """Which of `keys` are there; None: it can't be said."""
        if not keys:
            return ()
        names = [self._name(key) for key in keys]
        return self._ask(lambda: self._values.exists(names), len(names), self._until(timeout_s))

    def absent(self, keys: Sequence[BlockKey]) -> Sequence[BlockKey] | None:
        """Which of `keys`, however many, are not there; None: it can't be said of all.

        Each part of them has `timeout_s`.
        """
        absent: list[BlockKey] = []
        for at in range(0, len(keys), _NAMES_AT_ONCE):
            part = keys[at : at + _NAMES_AT_ONCE]
            there = self.exist(part)
            if there is None:
                return None
            absent += [key for key, is_there in zip(part, there, strict=True) if not is_there]
        return absent

    def get(
        self,
        keys: Sequence[BlockKey],
        into: Sequence[Sequence[Page]],
        timeout_s: Seconds | None = None,
    ) -> tuple[bool, ...]:
        """Read block i into the pages `into[i]`; which of them hold it now, verified.

        The pages of the others mean nothing. Raises `BugError` for pages that are not a block's.
        """
        for pages in into:
            check_pages(pages, self._origin)
        until = self._until(timeout_s)
        good: list[bool] = []
        for batch in _batches(keys, self._origin.block_bytes):
            values = self._read(batch, until)
            if values is None:
                break
            targets = into[len(good) : len(good) + len(batch)]
            good += map(self._accepted, batch, values, targets)
        return tuple(good) + (False,) * (len(keys) - len(good))

    def some(self, place: int) -> tuple[int, Sequence[BlockKey]] | None:
        """From `place` on (0: the start), some blocks of this origin that are there, and the next
        place (0: the end); None: it could not be asked."""
        said = self._names(place)
        ours = None if said is None else self._ours(said[1], None)
        return None if said is None or ours is None else (said[0], ours)

    def verify(self, keys: Sequence[BlockKey]) -> RemoteVerified:
        """Read these again and compare checksums; what is wrong is removed. No use of the blocks.

        It may take `timeout_s` for each part of up to 32 MiB, and for the removal.
        """
        scratch = new_pages(self._origin)
        absent: list[BlockKey] = []
        wrong: list[BlockKey] = []
        all_asked = True
        for batch in _batches(keys, self._origin.block_bytes):
            values = self._read(batch, self._until(None))
            all_asked &= values is not None
            for key, value in zip(batch, values or (), strict=False):
                if value is None or self._is_strangers(value):
                    absent.append(key)
                elif not self._is_good(key, value, scratch):
                    wrong.append(key)
        return RemoteVerified(
            absent=tuple(absent),
            wrong=tuple(wrong),
            all_asked=self.remove(wrong) and all_asked,
        )

    def remove(self, keys: Sequence[BlockKey], timeout_s: Seconds | None = None) -> bool:
        """Forget these; False: it could not be asked."""
        names = [self._name(key) for key in keys]

        def remove() -> Sequence[bool]:
            self._values.remove(names)
            return [True] * len(names)

        return not names or self._ask(remove, len(names), self._until(timeout_s)) is not None

    def clear(
        self, tenant: bytes | None, keys: Sequence[BlockKey] | None = None
    ) -> tuple[tuple[BlockKey, ...], bool]:
        """Forget the tenant's (None: anybody's) among the keys (None: all of this origin); which
        they were, and whether all could be asked about.

        Each step of it has `timeout_s`: all that is there is walked through.
        """
        gone: list[BlockKey] = []
        for names in self._named(keys):
            ours = None if names is None else self._ours(names, tenant)
            if ours is None or not self.remove(ours):
                return tuple(gone), False
            gone += ours
        return tuple(gone), True

    def put(self, blocks: Sequence[Block], timeout_s: Seconds | None = None) -> tuple[bool, ...]:
        """Keep these; which of them were taken. Raises `BugError` for pages of no block."""
        for _, pages, _ in blocks:
            check_pages(pages, self._origin)
        until = self._until(timeout_s)
        kept: list[bool] = []
        for batch in _batches(blocks, self._origin.block_bytes):
            values = [self._value(*block) for block in batch]
            offered = [value for value in values if value is not None]
            put = partial(self._values.put, offered)
            taken = iter(self._ask(put, len(offered), until) or () if offered else ())
            kept += [value is not None and next(taken, False) for value in values]
        with self._lock:
            self._counts["put"] += sum(kept)
            self._counts["put_not_taken"] += len(kept) - sum(kept)
        return tuple(kept)

    def stats(self) -> TierStats:
        """Counts; what is there is unknown: `blocks`, `used_bytes` and `limit_bytes` are 0."""
        with self._lock:
            counts = dict(self._counts)
            counts["breaker_opened"] = self._breaker.opened
        return TierStats(
            tier=Tier.REMOTE,
            blocks=0,
            used_bytes=0,
            limit_bytes=0,
            put_blocks_total=counts.pop("put", 0),
            hit_blocks_total=counts.pop("read", 0),
            missed_blocks_total=counts.pop("read_absent", 0),
            dropped=tuple(sorted((what, count) for what, count in counts.items() if count)),
        )

    def close(self) -> None:
        """End what runs; later calls miss."""
        self._closed = True
        self._values.reset()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _named(self, keys: Sequence[BlockKey] | None) -> Iterator[Sequence[bytes] | None]:
        """Names of these, or of all blocks of anybody's, in parts; None: it could not be asked."""
        if keys is not None:
            for at in range(0, len(keys), _NAMES_AT_ONCE):
                yield [self._name(key) for key in keys[at : at + _NAMES_AT_ONCE]]
            return
        place = 0
        for _ in range(_MOST_PARTS):
            said = self._names(place)
            if said is None:
                yield None
                return
            place, names = said
            yield names
            if place == 0:
                return
        yield None

    def _names(self, place: int) -> tuple[int, Sequence[bytes]] | None:
        """See `RemoteValues.names`; None: it could not be asked."""
        said = self._ask(lambda: [self._values.names(self._namespace, place)], 1, self._until(None))
        return None if said is None else said[0]

    def _ours(self, names: Sequence[bytes], tenant: bytes | None) -> list[BlockKey] | None:
        """Which of these are blocks of this origin, and of the tenant; None: it can't be said."""
        if not names:
            return []
        get = partial(self._values.get, names, most_header_bytes(self._origin))
        values = self._ask(get, len(names), self._until(None))
        if values is None:
            return None
        return [
            header.block.key
            for header in (decode_header(value or b"") for value in values)
            if isinstance(header, RecordHeader)
            and header.origin == self._origin
            and tenant in (None, header.block.tenant)
        ]

    def _until(self, timeout_s: Seconds | None) -> Seconds:
        return self._clock() + (self._timeout_s if timeout_s is None else timeout_s)

    def _value(
        self, block: RecordedBlock, pages: Sequence[Page], checksums: Sequence[int]
    ) -> tuple[bytes, bytes] | None:
        """Name and record of a block; None: it is not offered."""
        if unrecordable(self._origin, block) is not None:
            return None
        header = RecordHeader.of(self._origin, block, tuple(checksums))
        if header.record_bytes > self._most_value_bytes:
            return None
        parts = record_parts(self._seal, header, pages, checksums)
        return self._name(block.key), b"".join(parts)

    def _read(self, keys: Sequence[BlockKey], until: Seconds) -> Sequence[bytes | None] | None:
        """The values of these; None: it could not be asked."""
        # One byte more than any good value has, so that a longer one is seen to be none.
        most_bytes = self._origin.block_bytes + MOST_HEADER_BYTES + 1
        names = [self._name(key) for key in keys]
        return self._ask(partial(self._values.get, names, most_bytes), len(names), until)

    def _accepted(self, key: BlockKey, value: bytes | None, into: Sequence[Page]) -> bool:
        """Copy a value into pages; whether they hold the block now."""
        if value is None:
            self._count("read_absent")
            return False
        good = self._is_good(key, value, into)
        self._count("read" if good else "read_damaged")
        return good

    def _is_strangers(self, value: bytes) -> bool:
        """It is a record of others, whose pages are not ours."""
        header = decode_header(value)
        return isinstance(header, RecordHeader) and header.origin != self._origin

    def _is_good(self, key: BlockKey, value: bytes, into: Sequence[Page]) -> bool:
        """Copy a value into pages; whether it is the block's, and whole."""
        header = decode_header(value)
        return (
            isinstance(header, RecordHeader)
            and header.block.key == key
            and header.origin == self._origin
            and not header.removed
            and header.record_bytes == len(value)
            and self._copied(value, header, into)
        )

    def _copied(self, value: bytes, header: RecordHeader, into: Sequence[Page]) -> bool:
        """Copy the chunks; whether what arrived is what was put there."""
        if self._seal is not None:
            at, view = header.header_bytes, memoryview(value)
            return self._seal.opens(view[:at], view[at:], into)
        data = np.frombuffer(value, np.uint8)
        for chunk, page in zip(header.chunks, into, strict=True):
            page[:] = data[chunk.at : chunk.at + chunk.stored_bytes]
        return all_match(into, header.checksums)

    def _name(self, key: BlockKey) -> bytes:
        return self._namespace + key

    def _ask(
        self, call: Callable[[], Sequence[_T]], answers: int, until: Seconds
    ) -> Sequence[_T] | None:
        """What the system answers before `until`; None: nothing that can be used."""
        if not self._turn.acquire(timeout=max(0.0, until - self._clock())):
            self._count("busy")
            return None
        try:
            with self._lock:
                allowed = not self._closed and self._breaker.allows(self._clock())
            if not allowed:
                self._count("paused")
                return None
            why, answer = self._outcome(call, until)
            if answer is not None and len(answer) != answers:
                why, answer = "wrong_number", None
        finally:
            self._turn.release()
        with self._lock:
            if answer is None:
                self._counts[f"failed_{why}"] += 1
                self._breaker.failed(self._clock())
            else:
                self._breaker.succeeded()
        return answer

    def _outcome(
        self, call: Callable[[], Sequence[_T]], until: Seconds
    ) -> tuple[str, Sequence[_T] | None]:
        """Why there is no answer, or the answer. The call runs on the tier's own thread."""
        if self._running is not None and not self._running.done():
            return "stuck", None
        try:
            running = self._running = self._thread.submit(call)
            problem = running.exception(timeout=max(0.0, until - self._clock()))
        except NotDone:
            self._values.reset()
            return "late", None
        except (RuntimeError, CancelledError):  # closed meanwhile
            return "closed", None
        if isinstance(problem, BugError):
            raise problem
        return (type(problem).__name__, None) if problem else ("", running.result())

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1


def _batches(items: Sequence[_T], block_bytes: int) -> Sequence[Sequence[_T]]:
    size = max(1, _BATCH_BYTES // block_bytes)
    return [items[at : at + size] for at in range(0, len(items), size)]
