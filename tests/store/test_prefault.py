"""Page tables are filled where the system can do it, and nothing is lost where it can't."""

import mmap
import os

import pytest

from antiphon.store.transfer.prefault import MADV_POPULATE_WRITE, prefault, prefault_part

UNKNOWN_ADVICE = 9999
SLICE = 16 << 20


def test_a_system_that_cannot_is_no_error() -> None:
    with mmap.mmap(-1, 1 << 16) as area:
        prefault(area, UNKNOWN_ADVICE)


def test_a_lack_of_memory_is_told() -> None:
    """As an error, not as the signal that a write would be answered with."""
    fd = os.memfd_create("test")
    os.ftruncate(fd, 2 * SLICE + 4096)
    area = mmap.mmap(fd, 2 * SLICE + 4096)
    os.ftruncate(fd, SLICE)
    with pytest.raises(OSError, match="Bad address"):
        prefault(area, MADV_POPULATE_WRITE)
    assert os.fstat(fd).st_blocks * 512 == SLICE, "what there was is there"
    os.close(fd)


def test_a_part_is_that_part() -> None:
    fd = os.memfd_create("test")
    os.ftruncate(fd, 64 * mmap.PAGESIZE)
    area = mmap.mmap(fd, 64 * mmap.PAGESIZE)
    prefault_part(area, MADV_POPULATE_WRITE, 8 * mmap.PAGESIZE, 10 * mmap.PAGESIZE + 1)
    assert os.fstat(fd).st_blocks * 512 == 3 * mmap.PAGESIZE
    os.close(fd)
