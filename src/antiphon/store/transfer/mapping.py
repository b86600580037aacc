"""Another worker's region, mapped for reading: pulls copy pages of it and verify them."""

import fcntl
import mmap
import os
import threading
from array import array
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from functools import partial

import numpy as np
import numpy.typing as npt

from antiphon.errors import BugError, PeerError
from antiphon.types import PagePull

from .page_copy import (
    CORRUPT,
    GOOD,
    IMPOSSIBLE,
    NO_TARGET,
    OVERTAKEN,
    ROW_WORDS,
    STALE,
    CopyPages,
    Part,
    Places,
    copy_pages,
    copy_parts,
)
from .prefault import MADV_POPULATE_READ, prefault
from .region import OwnedRegion
from .region_header import HEADER_BYTES, RegionHeader

_WORDS = 1 << 64
_SECTOR_BYTES = 512


class Miss(StrEnum):
    """Why a page was not pulled."""

    STALE = "stale"
    """Its generation is another: it was reassigned before the copy."""
    OVERTAKEN = "overtaken"
    """Its generation changed during the copy."""
    CORRUPT = "corrupt"
    """Its bytes do not have the offered checksum."""
    IMPOSSIBLE = "impossible"
    """The offer names a page that does not exist, or a generation of a page that is not sealed."""
    UNMAPPED = "unmapped"
    """The region was closed before."""
    NO_MEMORY = "no_memory"
    """The system has no memory for the page that it was to be copied to."""
    UNREACHED = "unreached"
    """No path to its owner brought it in time."""


MISS_OF = {
    STALE: Miss.STALE,
    OVERTAKEN: Miss.OVERTAKEN,
    CORRUPT: Miss.CORRUPT,
    IMPOSSIBLE: Miss.IMPOSSIBLE,
}


class MappedRegion:
    """A peer's region, read-only. It stays readable when the peer dies.

    Several threads may pull at the same time, into different targets. `missed` counts the pages
    that were not pulled by reason, `pulled` those that were; both only grow.
    """

    def __init__(self, fd: int, own: OwnedRegion, *, copy: CopyPages = copy_pages) -> None:
        """Map the region behind `fd`, which the caller closes; pulls go into `own`.

        Takes about 0.1 s a GiB, so not on an event loop.
        Raises `PeerError`: not a sealed region, a header that contradicts itself, another layout.
        """
        self.header = _checked_header(fd, own)
        self.missed: Counter[Miss] = Counter()
        self.pulled = 0
        self._own = own
        self._copy = copy
        self._lock = threading.Lock()
        self._pulls_running = 0
        self._closing = False
        self._map = _mapped(fd, self.header.region_bytes)
        start = np.frombuffer(self._map, np.uint8).ctypes.data
        self._places = Places(
            generations_at=start + self.header.generations_at,
            pages_at=start + self.header.pages_at,
            pages=self.header.pages,
            own_generations_at=own.generations.ctypes.data,
            own_pages_at=own.content.ctypes.data,
            own_pages=own.header.pages,
            page_bytes=self.header.page_bytes,
        )
        copy_pages(self._places, array("Q"))  # compiled before a request waits for it

    def pull(self, pages: Sequence[PagePull]) -> tuple[bool, ...]:
        """Copy `pages` into pages of our own; which of them now hold what was offered.

        Blocks, without the interpreter lock. Targets are ours to write; their generations become
        odd, and those that are not good hold nothing of use. Whatever the peer or its offer says,
        nothing is raised. Raises `BugError` for a target that does not exist.
        """
        return self._pulled(pages, self._copy, last=True)

    def pull_part(self, pages: Sequence[PagePull], part: Part) -> tuple[bool, ...]:
        """Like `pull`, for a part of each page; which of them may still become good.

        With the last part it is known which of them now hold what was offered: the parts before
        must have been pulled into the same targets, and nothing else written there.
        """
        return self._pulled(pages, partial(copy_parts, part=part), last=part.last)

    def _pulled(
        self, pages: Sequence[PagePull], copy: CopyPages, *, last: bool
    ) -> tuple[bool, ...]:
        if not self._own.back_each([page.target for page in pages]):
            return self._none(Miss.NO_MEMORY, len(pages))
        table = _table(pages)
        with self._lock:
            closing = self._closing
            self._pulls_running += not closing
        if closing:
            return self._none(Miss.UNMAPPED, len(pages))
        try:
            copy(self._places, table)
        finally:
            with self._lock:
                self._pulls_running -= 1
                self._unmap_if_unused()
        return self._counted(table[::ROW_WORDS], last)

    def close(self) -> None:
        """Unmap: at once, or when the last pull that runs now is done. Later pulls get nothing."""
        with self._lock:
            self._closing = True
            self._unmap_if_unused()

    def _none(self, why: Miss, pages: int) -> tuple[bool, ...]:
        with self._lock:
            self.missed[why] += pages
        return (False,) * pages

    def _counted(self, verdicts: "array[int]", last: bool) -> tuple[bool, ...]:
        if not any(verdicts):  # all GOOD
            with self._lock:
                self.pulled += last * len(verdicts)
            return (True,) * len(verdicts)
        missed = Counter(verdicts)
        if missed[NO_TARGET]:
            raise BugError(f"{missed[NO_TARGET]} targets of a pull do not exist")
        with self._lock:
            self.pulled += last * missed.pop(GOOD, 0)
            for verdict, count in missed.items():
                self.missed[MISS_OF[verdict]] += count
        return tuple([verdict == GOOD for verdict in verdicts])

    def _unmap_if_unused(self) -> None:
        """Under the lock."""
        if self._closing and not self._pulls_running and not self._map.closed:
            self._map.close()


def pull_table(pages: Sequence[PagePull]) -> npt.NDArray[np.uint64]:
    """[pages, 4]: source page, generation, checksum, target, as `page_copy` reads it."""
    return np.array(_table(pages), np.uint64).reshape(-1, ROW_WORDS)


def _table(pages: Sequence[PagePull]) -> "array[int]":
    """One row a page for `copy_pages`; what fits into no word becomes a page that can't exist."""
    try:
        return array("Q", [word for page in pages for word in _row(page)])
    except OverflowError:
        return array("Q", [word for page in pages for word in _possible(_row(page))])


def _row(page: PagePull) -> tuple[int, int, int, int]:
    source = page.source
    return source.page, source.generation, source.checksum, page.target


def _possible(row: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    *source, target = (word if 0 <= word < _WORDS else _WORDS - 1 for word in row)
    if tuple(source) == row[:3]:
        return (*row[:3], target)
    return _WORDS - 1, 0, 0, target


def _mapped(fd: int, size: int) -> mmap.mmap:
    """Read-only. If all of it exists it is faulted in now; reading holes would fill them."""
    try:
        area = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        if os.fstat(fd).st_blocks * _SECTOR_BYTES >= size:
            prefault(area, MADV_POPULATE_READ)
    except (OSError, ValueError) as error:
        raise PeerError(f"a peer's KV region can't be mapped: {error}") from error
    return area


def _checked_header(fd: int, own: OwnedRegion) -> RegionHeader:
    """Read the header by a copy of it, so that it can't change between check and use."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        file_bytes = os.fstat(fd).st_size
        data = os.pread(fd, HEADER_BYTES, 0)
    except OSError as error:
        raise PeerError(f"a peer sent a descriptor of no KV region: {error}") from error
    if not seals & fcntl.F_SEAL_SHRINK:
        raise PeerError("a peer's KV region is not sealed: it could become shorter under a reader")
    header = RegionHeader.decoded(data, file_bytes)
    for name in ("layout", "page_tokens", "page_bytes"):
        theirs, ours = getattr(header, name), getattr(own.header, name)
        if theirs != ours:
            raise PeerError(f"a peer's KV can't be read here: its {name} is {theirs}, ours {ours}")
    return header
