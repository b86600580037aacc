"""The disk tier: blocks of KV in append-only segment files of one folder.

    append ──► segment 7, being written          read ──► index ──► any segment
               segment 6                         restart: headers ──► index
               …
               segment 2, the oldest ──► goes when the limit is reached; of its blocks, those that
                                         were read since they were written are appended again

A block can be found from the moment on when all of it is written. Nothing on disk is believed: a
record's header must be the one that the index expects, under a digest, and each page must have its
checksum. A file that was cut, swapped, renamed or damaged costs misses, and never gives wrong KV.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from antiphon.errors import UsageError
from antiphon.store.record import (
    KvOrigin,
    Page,
    RecordedBlock,
    check_pages,
    checksum_problem,
    new_pages,
    unrecordable,
)
from antiphon.store.record.record_seal import RecordSeal
from antiphon.types import BlockKey, Seconds, Tier, TierStats

from .block_index import Entry
from .call_gate import CallGate
from .disk_calls import DiskCalls
from .disk_state import DiskState
from .disk_writer import DiskWriter
from .outcomes import Appended, DiskMiss, DiskRefusal, Fsync, NotAppended, Verified
from .private_folder import PrivateFolder
from .record_files import RecordFiles
from .recovery import Recovery
from .segment_writer import SegmentWriter

SEGMENT_BYTES = 64 << 20
_LEAST_SEGMENTS = 8
"""A small tier has smaller segments: what goes at once is never more than its eighth part."""
_NO_KEY = bytes(32)


class DiskTier:
    """Blocks of one origin in a folder that this process has for itself.

    `append` blocks and is called from one thread at a time; everything else may be called from any
    thread at any time. Nothing that a disk does is raised. Other origins' records in the folder are
    kept, unseen, until their segment is the oldest of a full tier.
    """

    def __init__(  # noqa: PLR0913 - settings, and what tests put in a disk's and a clock's place
        self,
        folder: Path | PrivateFolder,
        origin: KvOrigin,
        *,
        limit_bytes: int,
        fsync: Fsync = Fsync.SEGMENT,
        seal: RecordSeal | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Callable[[], Seconds] = time.monotonic,
        calls: DiskCalls | None = None,
        files: type[RecordFiles] = RecordFiles,
    ) -> None:
        """Make the folder (mode 0700) if need be and lock it; reads nothing else. One that is
        locked already is shared, and stays its owner's. `seal`: records are sealed with it, and no
        others are read; without one those that are sealed are others.

        Raises `UsageError`: the folder can't be made or written, others can enter it, or another
        store uses it; there is no record for such pages; or no block fits.
        """
        origin = origin if seal is None else seal.origin(origin)
        _check(origin, limit_bytes)
        segment_bytes = min(segment_bytes, limit_bytes // _LEAST_SEGMENTS)
        self._limit_bytes = limit_bytes
        opened = PrivateFolder(folder) if isinstance(folder, Path) else folder.shared()
        self._state = DiskState(opened, calls or DiskCalls(), origin, seal)
        for number, size in self._state.folder.segments.items():
            self._state.index.found(number, size)
        self._gate = CallGate()
        self._writing = threading.Lock()
        self._forgetting = threading.Lock()
        self._files = files(self._state)
        self._recovery = Recovery(self._state)
        self._writer = DiskWriter(
            self._state,
            self._files,
            SegmentWriter(self._state, fsync=fsync, segment_bytes=segment_bytes),
            limit_bytes=limit_bytes,
            rewrite_bytes=segment_bytes // 2,
            clock=clock,
        )

    def recover(
        self, progress: Callable[[int, int], None] | None = None
    ) -> tuple[RecordedBlock, ...]:
        """Find what earlier lives left; returns the blocks that were found, oldest first.

        Reads headers only, a few milliseconds a GiB. Call it once; the tier can be used meanwhile
        (from other threads), and has what was found so far. `progress(bytes done, bytes in all)` is
        called after each segment. `close` ends it early.
        """
        with self._gate.call() as is_open, self._forgetting:
            if not is_open:
                return ()
            with self._writing:
                self._writer.trim()
            return self._recovery.run(progress or _nobody, lambda: self._gate.is_open)

    def append(
        self, block: RecordedBlock, pages: Sequence[Page], checksums: Sequence[int]
    ) -> Appended | NotAppended:
        """Write a block. `checksums`: XXH3-64 of each page, as `OwnedRegion.seal` gives them.

        Pages whose bytes have other checksums (they were reassigned meanwhile) are never given to a
        reader. Raises `BugError` if the pages are not those of one block.
        """
        check_pages(pages, self._state.origin)
        with self._gate.call() as is_open, self._writing:
            if not is_open:
                return NotAppended(DiskRefusal.CLOSED)
            return self._writer.append(block, pages, checksums)

    def read(self, key: BlockKey, into: Sequence[Page]) -> DiskMiss | None:
        """Read a block into `into`; None: all of it is there and verified, else `into` means
        nothing. Counts as a use of the block. Raises `BugError` for pages that are not a block's.
        """
        check_pages(into, self._state.origin)
        with self._gate.call() as is_open:
            return self._read(key, into) if is_open else DiskMiss.CLOSED

    def __contains__(self, key: BlockKey) -> bool:
        """Whether it can probably be read. Counts as no use."""
        return self.block(key) is not None

    def present(self, keys: Sequence[BlockKey]) -> int:
        """How many of `keys`, from the first on without a gap, are here. Counts as no use."""
        with self._state.lock:
            for count, key in enumerate(keys):
                if self._state.index.get(key) is None:
                    return count
        return len(keys)

    def block(self, key: BlockKey) -> RecordedBlock | None:
        """What is known of a block; None: it is not here."""
        with self._state.lock:
            entry = self._state.index.get(key)
            return None if entry is None else entry.block

    def remove(self, keys: Iterable[BlockKey]) -> tuple[BlockKey, ...]:
        """Forget these for good (a restart does not bring them back); returns those that were here.

        Their bytes stay until their segment goes. What a failing disk could not mark may be back
        after a restart, and is counted as `remove_unmarked`. Waits for `recover`.
        """
        with self._gate.call() as is_open, self._forgetting:
            return self._forget(keys) if is_open else ()

    def clear(self, tenant: bytes | None = None) -> tuple[BlockKey, ...]:
        """Forget all of a tenant's blocks as `remove` does.

        Without one: all of this origin; then segments that hold nothing else are deleted.
        """
        with self._gate.call() as is_open, self._forgetting:
            if not is_open:
                return ()
            deleted = self._delete_segments() if tenant is None else ()
            with self._state.lock:
                keys = self._state.index.of_tenant(tenant)
            return deleted + self._forget(keys)

    def lose_deleted(self) -> tuple[BlockKey, ...]:
        """Forget what lay in files that somebody deleted; returns it. `stats` counts it as lost.

        Waits for what is being written only if there is such a file.
        """
        with self._gate.call() as is_open:
            with self._state.lock:
                numbers = self._state.index.segments()
            if not is_open or all(map(self._state.folder.has, numbers)):
                return ()
            with self._writing:
                return self._writer.lose_deleted()

    @property
    def folder_is_gone(self) -> bool:
        """Whether the folder itself was deleted: nothing is written any more."""
        with self._gate.call() as is_open:
            return is_open and self._state.folder.is_gone

    def verify(self, keys: Iterable[BlockKey] | None = None) -> Verified:
        """Read these (without: all) again and compare checksums. Takes as long as the disk does."""
        if keys is None:
            with self._state.lock:
                keys = self._state.index.of_tenant(None)
        scratch = new_pages(self._state.origin)
        checked, forgotten = 0, []
        for key in keys:
            with self._gate.call() as is_open:
                if not is_open:
                    break
                missed = self._read(key, scratch, counts=False)
            checked += missed is not DiskMiss.ABSENT
            if missed in (DiskMiss.DAMAGED, DiskMiss.FAILED):
                forgotten.append(key)
        return Verified(checked, tuple(forgotten))

    def stats(self) -> TierStats:
        """Counts at this moment. `dropped` has the refusals, misses and what recovery skipped."""
        with self._state.lock:
            counts = dict(self._state.counts)
            blocks, used_bytes = len(self._state.index), self._state.index.size_bytes
        absent = counts.pop(f"read_{DiskMiss.ABSENT}", 0)
        return TierStats(
            tier=Tier.DISK,
            blocks=blocks,
            used_bytes=used_bytes,
            limit_bytes=self._limit_bytes,
            put_blocks_total=counts.pop("put", 0),
            hit_blocks_total=counts.pop("read", 0),
            missed_blocks_total=absent + sum(n for k, n in counts.items() if k.startswith("read_")),
            evicted_blocks_total=counts.pop("evicted", 0),
            dropped=tuple(sorted(counts.items())),
        )

    def close(self) -> None:
        """Flush as `fsync` says and unlock the folder. Running calls end first; later ones miss."""
        if self._gate.close():
            self._writer.finish()
            self._state.folder.close()

    def _read(self, key: BlockKey, into: Sequence[Page], *, counts: bool = True) -> DiskMiss | None:
        while True:
            with self._state.lock:
                entry = self._state.index.get(key)
            missed = DiskMiss.ABSENT if entry is None else self._files.read(entry, into)
            with self._state.lock:
                if missed is None and entry is not None and counts:
                    entry.uses += 1
                    self._state.counts["read"] += 1
                if missed is None:
                    return None
                if self._state.index.get(key) is not entry:
                    continue  # it was moved, or it came, meanwhile
                self._state.index.drop(key)
                if counts or missed is not DiskMiss.ABSENT:
                    self._state.counts[f"read_{missed}"] += 1
            if entry is not None and missed is DiskMiss.DAMAGED:
                self._files.mark_removed(entry)
            return missed

    def _forget(self, keys: Iterable[BlockKey]) -> tuple[BlockKey, ...]:
        with self._state.lock:
            dropped = [entry for key in keys if (entry := self._state.index.drop(key)) is not None]
            self._state.counts["removed"] += len(dropped)
        self._mark(dropped)
        return tuple([entry.block.key for entry in dropped])

    def _mark(self, entries: Sequence[Entry]) -> None:
        unmarked = sum(not self._files.mark_removed(entry) for entry in entries)
        self._state.count("remove_unmarked", unmarked)

    def _delete_segments(self) -> tuple[BlockKey, ...]:
        """Delete those that hold nothing but blocks of this origin."""
        gone: tuple[BlockKey, ...] = ()
        with self._writing:
            with self._state.lock:
                numbers = self._state.index.segments()
                ours = [
                    n
                    for n in numbers
                    if (use := self._state.index.segment(n)) and not use.strangers
                ]
            for number in ours:
                with suppress(OSError):  # then its records are marked one by one
                    gone += self._writer.evict(number, "removed")
        return gone


def _check(origin: KvOrigin, limit_bytes: int) -> None:
    """Raises `UsageError` if no block of `origin` could be kept."""
    problem = checksum_problem(origin) or unrecordable(
        origin, RecordedBlock(key=_NO_KEY, parent=None)
    )
    if problem is None and origin.block_bytes > limit_bytes // 2:
        problem = (
            f"store.disk_bytes (--store-disk) {limit_bytes} is not twice the {origin.block_bytes} "
            "bytes of a block: raise it, or 0 for no disk tier"
        )
    if problem is not None:
        raise UsageError(f"the disk tier can't keep this KV: {problem}")


def _nobody(done: int, total: int) -> None:
    """Hears of progress and does nothing."""
