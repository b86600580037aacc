"""Writing blocks: what must go for them, and what becomes of a disk that takes no more."""

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from antiphon.core.tiers.breaker import Breaker
from antiphon.core.tiers.second_chance import Candidate, worth_rewriting
from antiphon.store.record import KvOrigin, Page, RecordedBlock, RecordHeader, unrecordable
from antiphon.types import BlockKey, Seconds

from .block_index import BlockIndex, Entry, Place
from .disk_calls import Bytes, DiskCalls
from .outcomes import Appended, DiskRefusal, NotAppended
from .private_folder import PrivateFolder, segment_name
from .record_files import RecordFiles
from .segment_writer import SegmentWriter

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskWriter:
    """The tier's side that writes. For one thread at a time; `lock` guards what readers see too:
    the index and the counts."""

    def __init__(  # noqa: PLR0913 - the parts of one tier
        self,
        folder: PrivateFolder,
        calls: DiskCalls,
        files: RecordFiles,
        segment: SegmentWriter,
        index: BlockIndex,
        lock: threading.Lock,
        counts: Counter[str],
        *,
        origin: KvOrigin,
        limit_bytes: int,
        rewrite_bytes: int,
        clock: Callable[[], Seconds],
    ) -> None:
        self._folder = folder
        self._calls = calls
        self._files = files
        self._segment = segment
        self._index = index
        self._lock = lock
        self._counts = counts
        self._origin = origin
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
        with self._lock:
            if refused is None:
                self._counts["put"] += 1
            else:
                self._counts[f"put_{refused}"] += 1
        return NotAppended(refused, tuple(evicted)) if refused else Appended(tuple(evicted))

    def finish(self) -> None:
        """End the segment that is being written."""
        with suppress(
            OSError
        ):  # what was not flushed may be lost at a power cut; then it is a miss
            self._segment.finish()

    def trim(self) -> None:
        """What lies there is more than the limit, which was lowered: the oldest segments go."""
        with suppress(OSError):
            while (
                oldest := self._oldest()
            ) is not None and self._index.size_bytes > self._limit_bytes:
                self.evict(oldest)

    def evict(self, number: int, why: str = "evicted") -> tuple[BlockKey, ...]:
        """Delete a segment; returns the blocks that went. After an `OSError` all is as before."""
        if number == self._segment.number:
            self.finish()
        with suppress(FileNotFoundError):
            self._calls.remove(self._folder.fd, segment_name(number))
        with self._lock:
            evicted = self._index.drop_segment(number)
            self._counts[why] += len(evicted)
        return evicted

    def _append(
        self,
        block: RecordedBlock,
        pages: Sequence[Page],
        checksums: Sequence[int],
        evicted: list[BlockKey],
    ) -> DiskRefusal | None:
        with self._lock:
            if self._index.get(block.key) is not None:
                return DiskRefusal.KNOWN
        if unrecordable(self._origin, block) is not None:
            return DiskRefusal.UNRECORDABLE
        header = RecordHeader.of(self._origin, block, tuple(checksums))
        if header.record_bytes > self._limit_bytes:
            return DiskRefusal.TOO_LARGE
        if not self._breaker.allows(self._clock()):
            return DiskRefusal.PAUSED
        try:
            self._make_room(header.record_bytes, evicted)
            self._write(header, pages, evicted)
        except OSError as error:
            self._breaker.failed(self._clock())
            return DiskRefusal.FULL if error.errno in _NO_ROOM else DiskRefusal.FAILED
        self._breaker.succeeded()
        return None

    def _write(self, header: RecordHeader, pages: Sequence[Page], evicted: list[BlockKey]) -> None:
        """Write and show it. A full disk gets its room from the oldest segment, once."""
        try:
            self._place(header, pages)
        except OSError as error:
            oldest = self._oldest()
            if error.errno not in _NO_ROOM or oldest is None or oldest == self._segment.number:
                raise
            evicted += self.evict(oldest)
            self._place(header, pages)

    def _place(self, header: RecordHeader, pages: Sequence[Page]) -> None:
        parts = [header.encoded(), *(page.data for page in pages)]
        place = self._written(parts, header.header_bytes, header.record_bytes)
        with self._lock:
            self._index.put(header.block, place)

    def _written(self, parts: Sequence[Bytes], header_bytes: int, record_bytes: int) -> Place:
        """Append a record that nobody sees yet. Its bytes count, whatever comes of it."""
        try:
            place = self._segment.write(parts, header_bytes=header_bytes, record_bytes=record_bytes)
        except OSError:
            newest = self._segment.newest
            if newest is not None:
                with suppress(OSError), self._lock:
                    name = segment_name(newest)
                    self._index.resize(newest, os.stat(name, dir_fd=self._folder.fd).st_size)
            raise
        with self._lock:
            self._index.resize(place.segment, place.at + place.record_bytes)
        return place

    def _make_room(self, need_bytes: int, evicted: list[BlockKey]) -> None:
        """Until a record of this size fits, the oldest segment goes. Raises `OSError`."""
        while self._index.size_bytes + need_bytes > self._limit_bytes:
            oldest = self._oldest()
            if oldest is None:
                return
            with suppress(OSError):  # then fewer get their second chance
                self._rewrite_used(oldest)
            evicted += self.evict(oldest)

    def _oldest(self) -> int | None:
        with self._lock:
            return self._index.oldest()

    def _rewrite_used(self, number: int) -> None:
        """Give what was used a place in the newest segment. Raises `OSError`."""
        if number == self._segment.number:
            self.finish()
        with self._lock:
            segment = self._index.segment(number)
            entries = [self._index.get(key) for key in segment.keys] if segment else []
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
        with self._lock:
            still_here = self._index.get(entry.block.key) is entry
            if still_here:
                self._index.put(entry.block, place)
                self._counts["rewritten"] += 1
        if not still_here:  # removed meanwhile, and must not come back
            self._files.mark_removed(Entry(entry.block, place))
