"""Single records in the segment files of a folder: read, copied, marked as removed."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from antiphon.store.record import REMOVED, Page, RecordHeader, all_match, decode_header

from .block_index import Entry, Place
from .disk_calls import read_whole
from .disk_state import DiskState
from .outcomes import DiskMiss
from .private_folder import segment_name


class RecordFiles:
    """A file is opened for each call: there may be more segments than descriptors, and whatever was
    done to a file meanwhile is noticed as with any other damage. Thread-safe."""

    def __init__(self, state: DiskState) -> None:
        self._state = state

    def read(self, entry: Entry, into: Sequence[Page]) -> DiskMiss | None:
        """Fill `into` with the block, and verify it; None: it is."""
        place, seal = entry.place, self._state.seal
        head = bytearray(place.header_bytes)
        chunk = bytearray() if seal is None else bytearray(place.record_bytes - place.header_bytes)
        parts = [page.data for page in into] if seal is None else [chunk]
        try:
            with self._opened(place) as fd:
                whole = read_whole(self._state.calls, fd, [head, *parts], place.at)
        except FileNotFoundError:
            return DiskMiss.ABSENT
        except OSError:
            return DiskMiss.FAILED
        header = self._expected(head, entry) if whole else None
        if header is None:
            return DiskMiss.DAMAGED
        good = all_match(into, header.checksums) if seal is None else seal.opens(head, chunk, into)
        return None if good else DiskMiss.DAMAGED

    def copy(self, place: Place) -> bytes:
        """The bytes of a record, unverified: its checksums go with it. Raises `OSError`."""
        data = bytearray(place.record_bytes)
        with self._opened(place) as fd:
            if not read_whole(self._state.calls, fd, [data], place.at):
                raise OSError("the segment is shorter than it was")
        return bytes(data)

    def mark_removed(self, entry: Entry) -> bool:
        """Make sure that no restart finds this record; False: it can't be done.

        Nothing is written unless this block's header lies there.
        """
        head = bytearray(entry.place.header_bytes)
        try:
            with self._opened(entry.place, to_write=True) as fd:
                whole = read_whole(self._state.calls, fd, [head], entry.place.at)
                if not whole or self._expected(head, entry) is None:
                    return False
                return self._state.calls.write_at(fd, [REMOVED], entry.place.at) == len(REMOVED)
        except OSError:
            return False

    def _expected(self, head: bytearray, entry: Entry) -> RecordHeader | None:
        """The header that these bytes are, if it is this block's and it was not removed."""
        header = decode_header(head)
        if (
            isinstance(header, RecordHeader)
            and not header.removed
            and header.block == entry.block
            and header.origin == self._state.origin
        ):
            return header
        return None

    @contextmanager
    def _opened(self, place: Place, *, to_write: bool = False) -> Iterator[int]:
        name = segment_name(place.segment)
        fd = self._state.calls.open(self._state.folder.fd, name, to_write=to_write)
        try:
            yield fd
        finally:
            os.close(fd)
