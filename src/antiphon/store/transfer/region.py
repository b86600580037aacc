"""A worker's KV memory as an area that other processes may map: an anonymous file of its own.

`memfd_create` gives a file without a name, which nobody can leave behind: it lives as long as a
descriptor or a mapping of it, so its content outlasts a killed owner. Sealed against shrinking and
growing, no reader can be hit by a file that became shorter (SIGBUS); sealed against new writers
once its owner has mapped it, no reader can change what others read. Why no other memory:
docs/decisions/0005-kv-memory-is-a-memfd.md.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from antiphon.errors import UsageError
from antiphon.types import KvShape, OfferedPage, PageId

from .generations import PageGenerations, Pages
from .prefault import MADV_POPULATE_WRITE, prefault, prefault_part
from .region_header import MOST_PAGES, RegionHeader, page_size_problem

_MOST_LAYOUT_BYTES = 256
_AT_ONCE_BYTES = 1 << 20
"""0.6 ms each: meanwhile nobody else can map or unmap memory."""
_F_SEAL_FUTURE_WRITE = 0x0010
"""Linux 5.1, fcntl(2): mappings that can be written stay so, and there will be no new ones."""


class OwnedRegion:
    """This process's region. Lives until `close`, or until nothing refers to it any more.

    `fd` is what peers get, over a Unix socket (SCM_RIGHTS): to read, nobody can write through it.
    `content` uint8 [pages * page_bytes] is
    zero at first; whoever writes to a page calls `begin_write` before.
    """

    def __init__(self, shape: KvShape, *, commit: bool = True) -> None:
        """`commit`: take all memory from the system now; else it is taken as `back` asks for it.

        Raises `UsageError`: a shape that can't be exchanged, or a system that has no memfd, or not
        the memory that is to be committed.
        """
        problem = _problem(shape)
        if problem is not None:
            raise UsageError(problem)
        self.shape = shape
        self.header = RegionHeader.of(shape)
        self.fd = _new_file(self.header)
        try:
            self._map = _mapped(self.fd, self.header, commit)
            self.fd = _without_writers(self.fd)
        except OSError as error:
            self.close()
            raise _refused(self.header, error) from error
        self.content = self._array(np.uint8, self.header.pages_at, shape.pages * shape.page_bytes)
        self.generations = self._array(np.uint64, self.header.generations_at, shape.pages)
        self._discipline = PageGenerations(self.generations, self.content, shape.page_bytes)
        self._backed = np.full(shape.pages, commit)
        self._whole = commit
        self.begin_write(())  # compiled, or loaded, before a request waits for it
        self.seal(())

    def back(self, first: PageId, count: int) -> bool:
        """Have memory for these consecutive pages before they are written for the first time.

        Costs nothing where it is there. False: the system has none left; a write would end the
        process. Calls about different pages may come from different threads.
        """
        if self._backed[first : first + count].all():
            return True
        start = self.header.pages_at + first * self.shape.page_bytes
        end = start + count * self.shape.page_bytes
        start -= start % mmap.PAGESIZE
        try:
            prefault_part(self._map, MADV_POPULATE_WRITE, start, end)
        except OSError:
            return False
        self._backed[first : first + count] = True
        return True

    def back_all(self, stopped: Callable[[], bool]) -> None:
        """`back` all pages in order, until `stopped`. Blocks, mostly without the interpreter lock.

        Raises `UsageError` if the system has no more memory.
        """
        some = max(1, _AT_ONCE_BYTES // self.shape.page_bytes)
        for first in range(0, self.shape.pages, some):
            if stopped():
                return
            if not self.back(first, min(some, self.shape.pages - first)):
                raise self._no_memory()
        self._whole = True

    def back_each(self, pages: Sequence[PageId] | Pages) -> bool:
        """Like `back`, for pages that need not follow each other, of those that exist."""
        if self._whole:
            return True
        listed = np.asarray(pages, np.int64)
        missing = listed[~self._backed.take(listed, mode="clip")]
        there = (page for page in np.unique(missing).tolist() if 0 <= page < self.shape.pages)
        return all(self.back(page, 1) for page in there)

    def begin_write(self, pages: Sequence[PageId] | Pages) -> None:
        """`pages` are about to be written: see `PageGenerations.begin_write`.

        Raises `UsageError` if the system has no memory for them.
        """
        self._discipline.begin_write(pages)
        if not self.back_each(pages):
            raise self._no_memory()

    def seal(self, pages: Sequence[PageId]) -> tuple[OfferedPage, ...]:
        """`pages` are complete and can be offered, in this order: see `PageGenerations.seal`."""
        return self._discipline.seal(pages)

    def intact(self, page: OfferedPage) -> bool:
        """Whether a page of this region holds what was sealed: see `PageGenerations.intact`."""
        return self._discipline.intact(page)

    def close(self) -> None:
        """Give the descriptor back; the memory goes with its last user here and elsewhere."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self.close()

    def _no_memory(self) -> UsageError:
        return _refused(self.header, OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))

    def _array(self, dtype: type, at: int, count: int) -> npt.NDArray:
        return np.frombuffer(self._map, dtype, count, at)


def _new_file(header: RegionHeader) -> int:
    """A new file with this header, whose size nobody can change any more."""
    if not hasattr(os, "memfd_create"):
        raise UsageError("workers can exchange KV on Linux only: this system has no memfd_create")
    fd = os.memfd_create("antiphon-kv", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, header.region_bytes)
        os.pwrite(fd, header.encoded(), 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError as error:
        os.close(fd)
        raise _refused(header, error) from error
    return fd


def _without_writers(fd: int) -> int:
    """The file with all its seals; whoever is given the result can read it, and no more.

    Where the system can't seal against new writers the result is another descriptor, opened for
    reading, and `fd` is closed.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        for_reading = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        os.close(fd)
        return for_reading
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
    return fd


def _mapped(fd: int, header: RegionHeader, commit: bool) -> mmap.mmap:
    """The file mapped; what comes before the pages, or with `commit` all of its memory, is taken
    from the system now.

    A pull into pages that were never touched runs at a tenth of its speed, and memory that is
    missing becomes an error of the start, not a SIGBUS in some later step.
    """
    area = mmap.mmap(fd, header.region_bytes)
    with suppress(OSError):  # the system gives shared memory no huge pages: slower, no more
        area.madvise(mmap.MADV_HUGEPAGE)
    try:
        if commit:
            prefault(area, MADV_POPULATE_WRITE)
        else:
            prefault_part(area, MADV_POPULATE_WRITE, 0, header.pages_at)
    except OSError:
        area.close()
        raise
    return area


def _refused(header: RegionHeader, error: OSError) -> UsageError:
    return UsageError(
        f"the system gives no {header.region_bytes} bytes of shared memory for KV ({error}): "
        "lower kv.memory_bytes (--kv-memory)"
    )


def _problem(shape: KvShape) -> str | None:
    if not 1 <= shape.pages <= MOST_PAGES:
        return f"the KV memory has {shape.pages} pages: kv.memory_bytes (--kv-memory) must hold one"
    if len(shape.layout.encode()) > _MOST_LAYOUT_BYTES:
        return f"the name of the KV layout is longer than {_MOST_LAYOUT_BYTES} bytes"
    problem = page_size_problem(shape.page_bytes)
    return problem and f"{problem}: raise kv.page_tokens"
