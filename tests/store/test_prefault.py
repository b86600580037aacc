"""Page tables are filled where the system can do it, and nothing is lost where it can't."""

import errno
import mmap

import pytest

from antiphon.store.transfer.prefault import MADV_POPULATE_WRITE, prefault

UNKNOWN_ADVICE = 9999


def test_a_system_that_cannot_is_no_error() -> None:
    with mmap.mmap(-1, 1 << 16) as area:
        prefault(area, UNKNOWN_ADVICE)


class NoMemory:
    """An area whose system has no memory left after the first slice."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return (40 << 20) + 4096

    def madvise(self, advice: int, start: int, length: int) -> None:
        assert advice == MADV_POPULATE_WRITE
        self.asked.append((start, length))
        if start:
            raise OSError(errno.ENOMEM, "no memory")


def test_a_lack_of_memory_is_told() -> None:
    area = NoMemory()
    with pytest.raises(OSError, match="no memory"):
        prefault(area, MADV_POPULATE_WRITE)  # type: ignore[arg-type]
    assert area.asked == [(0, 16 << 20), (16 << 20, 16 << 20)]
