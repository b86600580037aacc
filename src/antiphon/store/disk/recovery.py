"""The index of a disk tier, made again from the headers of its segment files."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from antiphon.store.record import KvOrigin, RecordedBlock, RecordProblem

from .block_index import Place
from .disk_state import DiskState
from .private_folder import segment_name
from .segment_scan import Scan, scan


class Recovery:
    """Of what lay in the folder when it was opened."""

    def __init__(self, state: DiskState) -> None:
        self._state = state
        self._segments: Sequence[int] = state.index.segments()
        self._tenants: dict[bytes, bytes] = {}
        self._numerics: dict[str, str] = {}

    def run(
        self, progress: Callable[[int, int], None], go_on: Callable[[], bool]
    ) -> tuple[RecordedBlock, ...]:
        """See `DiskTier.recover`. Ends early when it is not to `go_on`."""
        with self._state.lock:
            sizes = {
                n: use.size_bytes for n in self._segments if (use := self._state.index.segment(n))
            }
        done, total = 0, sum(sizes.values())
        for number, size in sizes.items():
            if not go_on():
                break
            self._segment(number)
            done += size
            progress(done, total)
        with self._state.lock:
            entries = map(self._state.index.get, self._state.index.of_tenant(None))
            return tuple([e.block for e in entries if e is not None and e.place.segment in sizes])

    def _segment(self, number: int) -> None:
        try:
            fd = self._state.calls.open(self._state.folder.fd, segment_name(number), to_write=True)
        except FileNotFoundError:
            self._drop(number)
            return
        except OSError:
            self._state.count("recover_unreadable")
            return
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # what follows a header is not wanted
            size = self._state.calls.size(fd)
            found = scan(self._state.calls, fd, size)
            size = self._without_torn_tail(fd, size, found)
        except OSError:
            self._state.count("recover_unreadable")
            return
        finally:
            os.close(fd)
        if size == 0:
            with suppress(OSError):
                self._state.calls.remove(self._state.folder.fd, segment_name(number))
            self._drop(number)
        else:
            self._enter(number, size, found)

    def _without_torn_tail(self, fd: int, size: int, found: Scan) -> int:
        """Cut off a record that was never finished; returns the file's size.

        What never was a segment of ours, or may be one of a later version's, is left as it is.
        """
        if found.end == size:
            return size
        self._state.count("recover_torn")
        unknown = found.skipped[RecordProblem.VERSION] or not found.records
        if found.skipped and unknown:
            return size
        try:
            self._state.calls.cut(fd, found.end)
        except OSError:
            return size
        return found.end

    def _enter(self, number: int, size: int, found: Scan) -> None:
        with self._state.lock:
            segment = self._state.index.segment(number)
            if segment is None:  # evicted meanwhile
                return
            self._state.index.resize(number, size)
            segment.strangers = bool(found.skipped)
            for problem, count in found.skipped.items():
                kind = "version" if problem is RecordProblem.VERSION else "damaged"
                self._state.counts[f"recover_{kind}"] += count
            for at, header in found.records:
                place = Place(number, at, header.header_bytes, header.record_bytes)
                if header.origin != self._state.origin:
                    segment.strangers = True
                    self._state.counts[self._foreign(header.origin)] += not header.removed
                elif header.removed:
                    self._forget_before(header.block, place)
                else:
                    self._state.index.put(self._shared(header.block), place)

    def _foreign(self, origin: KvOrigin) -> str:
        """What a record of this other origin is counted as."""
        ours = self._state.origin
        same = replace(origin, sealed_by=ours.sealed_by) == ours
        return "recover_other_key" if same else "recover_foreign"

    def _shared(self, block: RecordedBlock) -> RecordedBlock:
        """The same, with names that many blocks have kept once: a third of the index's memory."""
        return replace(
            block,
            tenant=self._tenants.setdefault(block.tenant, block.tenant),
            numerics=self._numerics.setdefault(block.numerics, block.numerics),
        )

    def _forget_before(self, block: RecordedBlock, place: Place) -> None:
        """The block was removed at this place: an earlier record of it must not come back."""
        entry = self._state.index.get(block.key)
        if entry is not None and entry.place < place:
            self._state.index.drop(block.key)

    def _drop(self, number: int) -> None:
        with self._state.lock:
            self._state.index.drop_segment(number)
