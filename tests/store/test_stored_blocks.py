"""A drill changes a byte of a record on disk, and the store finds that block damaged."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from disk_kit import fill, read, tier

from antiphon.core.draws import Draws
from antiphon.drill.process_fault import Process, process_of
from antiphon.drill.stored_blocks import change_byte, segments_of
from antiphon.store.disk import DiskMiss

Holder = Callable[[Path], Process]


@pytest.fixture
def holder() -> Iterator[Holder]:
    """Makes processes that hold a folder open, as a store holds its own, and nothing else."""
    with ExitStack() as until_end:

        def hold(folder: Path) -> Process:
            descriptor = os.open(folder, os.O_RDONLY)
            until_end.callback(os.close, descriptor)
            child = subprocess.Popen(
                [sys.executable, "-c", "input()"],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(descriptor,),
            )
            until_end.enter_context(child)
            process = process_of(child.pid)
            assert process is not None
            return process

        yield hold


@pytest.mark.parametrize("number", range(12))
def test_one_block_is_damaged_wherever_the_byte_lies(
    tmp_path: Path, holder: Holder, number: int
) -> None:
    disk = tier(tmp_path)
    fill(disk, range(5))
    store = holder(tmp_path)
    changed = change_byte(store, Draws(3), number)
    assert changed is not None
    assert changed.file in segments_of(store)
    assert changed.is_there
    assert changed.was != changed.now
    assert [read(disk, block) for block in range(5)].count(DiskMiss.DAMAGED) == 1
    disk.close()


def test_a_byte_that_was_written_over_is_not_there(tmp_path: Path, holder: Holder) -> None:
    """The negative control."""
    disk = tier(tmp_path)
    fill(disk, range(3))
    store = holder(tmp_path)
    changed = change_byte(store, Draws(3), 0)
    assert changed is not None
    with changed.file.open("r+b") as file:
        file.seek(changed.at)
        file.write(bytes([changed.was]))
    assert not changed.is_there
    changed.file.unlink()
    assert not changed.is_there
    disk.close()


def test_a_store_without_blocks_has_nothing_to_damage(tmp_path: Path, holder: Holder) -> None:
    disk = tier(tmp_path)
    assert change_byte(holder(tmp_path), Draws(1), 0) is None
    disk.close()
    assert segments_of(Process(os.getpid(), 0)) == []
