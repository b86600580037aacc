"""Writing blocks: what must go for them, and what becomes of a disk that takes no more."""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from antiphon.core.tiers.breaker import Breaker
from antiphon.core.tiers.second_chance import Candidate, worth_rewriting
from antiphon.store.record import Page, RecordedBlock, RecordHeader, unrecordable
from antiphon.store.record.record_seal import record_parts
from antiphon.types import BlockKey, Seconds

from .block_index import Entry, Place
from .disk_calls import Bytes
from .disk_state import DiskState
from .outcomes import Appended, DiskRefusal, NotAppended
from .private_folder import segment_name
from .record_files import RecordFiles
from .segment_writer import SegmentWriter

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskWriter:
    """The tier's side that writes. For one thread at a time."""

    def __init__(
        self,
        state: DiskState,
        files: RecordFiles,
        segment: SegmentWriter,
        *,
        limit_bytes: int,
        rewrite_bytes: int,
        clock: Callable[[], Seconds],
    ) -> None:
        """Second chances may take `rewrite_bytes` at once; these are kept free below the limit."""
        self._state = state
        self._files = files
        self._segment = segment
        self._limit_bytes = limit_bytes - rewrite_bytes
        self._rewrite_bytes = rewrite_bytes
        self._clock = clock
        self._breaker = Breaker(failures=1, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)

    def append(
        self, block: RecordedBlock, pages: Sequence[Page], checksums: Sequence[int]
    ) -> Appended | NotAppended:
        """See `DiskTier.append`."""
        evicted: list[BlockKey] = []
        refused = self._append(block, pages, checksums, evicted)
        self._state.count("put" if refused is None else f"put_{refused}")
        return NotAppended(refused, tuple(evicted)) if refused else Appended(tuple(evicted))

    def finish(self) -> None:
        """End the segment that is being written."""
        with suppress(OSError):  # what was not flushed may be lost at a power cut, and missed then
            self._segment.finish()

    def trim(self) -> None:
        """What lies there is more than the limit, which was lowered: the oldest segments go."""
        with suppress(OSError):
            while self._state.index.size_bytes > self._limit_bytes:
                oldest = self._oldest()
                if oldest is None:
                    return
                self.evict(oldest)

    def evict(self, number: int, why: str = "evicted") -> tuple[BlockKey, ...]:
        """Delete a segment; returns the blocks that went. After an `OSError` all is as before."""
        if number == self._segment.number:
            self.finish()
        with suppress(FileNotFoundError):
            self._state.calls.remove(self._state.folder.fd, segment_name(number))
        with self._state.lock:
            evicted = self._state.index.drop_segment(number)
            self._state.counts[why] += len(evicted)
        return evicted

    def lose_deleted(self) -> tuple[BlockKey, ...]:
        """Forget the segments whose files somebody deleted; returns the blocks that went."""
        with self._state.lock:
            numbers = self._state.index.segments()
        lost: tuple[BlockKey, ...] = ()
        for number in numbers:
            if not self._state.folder.has(number):
                lost += self.evict(number, "lost")
        return lost

    def _append(
        self,
        block: RecordedBlock,
        pages: Sequence[Page],
        checksums: Sequence[int],
        evicted: list[BlockKey],
    ) -> DiskRefusal | None:
        with self._state.lock:
            known = self._state.index.get(block.key)
        used = [self._segment.number, None if known is None else known.place.segment]
        if not all(number is None or self._state.folder.has(number) for number in used):
            evicted += self.lose_deleted()
        with self._state.lock:
            if self._state.index.get(block.key) is not None:
                return DiskRefusal.KNOWN
        if unrecordable(self._state.origin, block) is not None:
            return DiskRefusal.UNRECORDABLE
        if self._state.folder.is_gone:
            evicted += self.lose_deleted()
            return DiskRefusal.FOLDER_GONE
        header = RecordHeader.of(self._state.origin, block, tuple(checksums))
        if header.record_bytes > self._limit_bytes:
            return DiskRefusal.TOO_LARGE
        if not self._breaker.allows(self._clock()):
            return DiskRefusal.PAUSED
        try:
            self._make_room(header.record_bytes, evicted)
            parts = record_parts(self._state.seal, header, pages, checksums)
            self._write(header, parts, evicted)
        except OSError as error:
            self._breaker.failed(self._clock())
            return DiskRefusal.FULL if error.errno in _NO_ROOM else DiskRefusal.FAILED
        self._breaker.succeeded()
        return None

    def _write(self, header: RecordHeader, parts: Sequence[Bytes], evicted: list[BlockKey]) -> None:
        """Write and show it. A full disk gets its room from the oldest segment, once."""
        try:
            self._place(header, parts)
        except OSError as error:
            oldest = self._oldest()
            if error.errno not in _NO_ROOM or oldest is None or oldest == self._segment.number:
                raise
            evicted += self.evict(oldest)
            self._place(header, parts)

    def _place(self, header: RecordHeader, parts: Sequence[Bytes]) -> None:
        place = self._written(parts, header.header_bytes, header.record_bytes)
        with self._state.lock:
            self._state.index.put(header.block, place)

    def _written(self, parts: Sequence[Bytes], header_bytes: int, record_bytes: int) -> Place:
        """Append a record that nobody sees yet. Its bytes count, whatever comes of it."""
        try:
            place = self._segment.write(parts, header_bytes=header_bytes, record_bytes=record_bytes)
        except OSError:
            self._measure_newest()
            raise
        with self._state.lock:
            self._state.index.resize(place.segment, place.at + place.record_bytes)
        return place

    def _measure_newest(self) -> None:
        """A write failed, and what it left behind could perhaps not be cut off."""
        newest = self._segment.newest
        if newest is None:
            return
        with suppress(OSError):
            size = os.stat(segment_name(newest), dir_fd=self._state.folder.fd).st_size
            with self._state.lock:
                self._state.index.resize(newest, size)

    def _make_room(self, need_bytes: int, evicted: list[BlockKey]) -> None:
        """Until a record of this size fits, the oldest segment goes. Raises `OSError`."""
        while self._state.index.size_bytes + need_bytes > self._limit_bytes:
            oldest = self._oldest()
            if oldest is None:
                return
            with suppress(OSError):  # then fewer get their second chance
                self._rewrite_used(oldest)
            evicted += self.evict(oldest)

    def _oldest(self) -> int | None:
        with self._state.lock:
            return self._state.index.oldest()

    def _rewrite_used(self, number: int) -> None:
        """Give what was used a place in the newest segment. Raises `OSError`."""
        if number == self._segment.number:
            self.finish()
        with self._state.lock:
            segment = self._state.index.segment(number)
            entries = [self._state.index.get(key) for key in segment.keys] if segment else []
            by_key = {entry.block.key: entry for entry in entries if entry is not None}
            size = segment.size_bytes if segment else 0
        candidates = [
            Candidate(key, entry.place.record_bytes, entry.uses) for key, entry in by_key.items()
        ]
        for key in worth_rewriting(candidates, min(self._rewrite_bytes, size // 2)):
            self._rewrite(by_key[key])

    def _rewrite(self, entry: Entry) -> None:
        old = entry.place
        place = self._written([self._files.copy(old)], old.header_bytes, old.record_bytes)
        with self._state.lock:
            still_here = self._state.index.get(entry.block.key) is entry
            if still_here:
                self._state.index.put(entry.block, place)
                self._state.counts["rewritten"] += 1
        if not still_here:  # removed meanwhile, and must not come back
            self._files.mark_removed(Entry(entry.block, place))
