"""The index of a disk tier, made again from the headers of its segment files."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from antiphon.store.record import KvOrigin, RecordedBlock, RecordProblem

from .block_index import BlockIndex, Place
from .disk_calls import DiskCalls
from .private_folder import PrivateFolder, segment_name
from .segment_scan import Scan, scan


class Recovery:
    """Of what lay in the folder when it was opened. `lock` guards index and counts."""

    def __init__(
        self,
        folder: PrivateFolder,
        calls: DiskCalls,
        index: BlockIndex,
        lock: threading.Lock,
        counts: Counter[str],
        origin: KvOrigin,
    ) -> None:
        self._folder = folder
        self._calls = calls
        self._index = index
        self._lock = lock
        self._counts = counts
        self._origin = origin
        self._segments: Sequence[int] = index.segments()
        self._tenants: dict[bytes, bytes] = {}
        self._numerics: dict[str, str] = {}

    def run(
        self, progress: Callable[[int, int], None], go_on: Callable[[], bool]
    ) -> tuple[RecordedBlock, ...]:
        """See `DiskTier.recover`. Ends early when it is not to `go_on`."""
        with self._lock:
            sizes = {n: use.size_bytes for n in self._segments if (use := self._index.segment(n))}
        done, total = 0, sum(sizes.values())
        for number, size in sizes.items():
            if not go_on():
                break
            self._segment(number)
            done += size
            progress(done, total)
        with self._lock:
            entries = map(self._index.get, self._index.of_tenant(None))
            return tuple([e.block for e in entries if e is not None and e.place.segment in sizes])

    def _segment(self, number: int) -> None:
        try:
            fd = self._calls.open(self._folder.fd, segment_name(number), to_write=True)
        except FileNotFoundError:
            self._drop(number)
            return
        except OSError:
            self._count("recover_unreadable")
            return
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # what follows a header is not wanted
            size = self._calls.size(fd)
            found = scan(self._calls, fd, size)
            size = self._without_torn_tail(fd, size, found)
        except OSError:
            self._count("recover_unreadable")
            return
        finally:
            os.close(fd)
        if size == 0:
            with suppress(OSError):
                self._calls.remove(self._folder.fd, segment_name(number))
            self._drop(number)
        else:
            self._enter(number, size, found)

    def _without_torn_tail(self, fd: int, size: int, found: Scan) -> int:
        """Cut off a record that was never finished; returns the file's size.

        What never was a segment of ours, or may be one of a later version's, is left as it is.
        """
        if found.end == size:
            return size
        self._count("recover_torn")
        unknown = found.skipped[RecordProblem.VERSION] or not found.records
        if found.skipped and unknown:
            return size
        self._calls.cut(fd, found.end)
        return found.end

    def _enter(self, number: int, size: int, found: Scan) -> None:
        with self._lock:
            segment = self._index.segment(number)
            if segment is None:  # evicted meanwhile
                return
            self._index.resize(number, size)
            segment.strangers = bool(found.skipped)
            for problem, count in found.skipped.items():
                kind = "version" if problem is RecordProblem.VERSION else "damaged"
                self._counts[f"recover_{kind}"] += count
            for at, header in found.records:
                place = Place(number, at, header.header_bytes, header.record_bytes)
                if header.origin != self._origin:
                    segment.strangers = True
                    self._counts["recover_foreign"] += not header.removed
                elif header.removed:
                    self._forget_before(header.block, place)
                else:
                    self._index.put(self._shared(header.block), place)

    def _shared(self, block: RecordedBlock) -> RecordedBlock:
        """The same, with names that many blocks have kept once: a third of the index's memory."""
        return replace(
            block,
            tenant=self._tenants.setdefault(block.tenant, block.tenant),
            numerics=self._numerics.setdefault(block.numerics, block.numerics),
        )

    def _forget_before(self, block: RecordedBlock, place: Place) -> None:
        """The block was removed at this place: an earlier record of it must not come back."""
        entry = self._index.get(block.key)
        if entry is not None and entry.place < place:
            self._index.drop(block.key)

    def _drop(self, number: int) -> None:
        with self._lock:
            self._index.drop_segment(number)

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1
