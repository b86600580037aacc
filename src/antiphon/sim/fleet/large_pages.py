"""A large run's memory in large pages: its objects lie all over some gigabytes.

A processor finds the place of an address by tables of which it keeps a few thousand entries, and
in a virtual machine each entry that it lacks costs two walks of such tables. Pages of 2 MiB instead
of 4 KiB need 512 times fewer. Linux gives them to whoever asks (`madvise`), where it is set to.
"""

import ctypes
import resource
from collections.abc import Iterator
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_PAGE_BYTES = 2 * 2**20
_LEAST_BYTES = 256 * 2**20
"""A smaller process hardly gains."""
_GROWTH = 1.2
"""It has become so many times as large, before it is asked again."""
_MADV_COLLAPSE = 25
"""Make large pages of what is there now; since Linux 6.1. (From the kernel's `mman-common.h`.)"""


class LargePages:
    """Of this process. A wish: where the system knows nothing of it, nothing happens."""

    def __init__(self) -> None:
        self._ask_at_bytes = _LEAST_BYTES

    def ask(self) -> None:
        """To be called now and then. Asks for what has come since, once that is much."""
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if peak_bytes < self._ask_at_bytes or not _MAPS.exists():
            return
        self._ask_at_bytes = int(_GROWTH * peak_bytes)
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
        for begin, end in ranges_of(_MAPS.read_text(encoding="utf-8")):
            madvise(begin, end - begin, _MADV_COLLAPSE)  # what fails stays as it is


def ranges_of(maps: str) -> Iterator[tuple[int, int]]:
    """Where private memory lies that no file is behind: first and last address, in whole large
    pages. `maps`: as `/proc/PID/maps` has it."""
    for line in maps.splitlines():
        addresses, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
            continue
        begin, end = (int(address, 16) for address in addresses.split("-"))
        begin, end = -(-begin // _PAGE_BYTES) * _PAGE_BYTES, end // _PAGE_BYTES * _PAGE_BYTES
        if begin < end:
            yield begin, end
