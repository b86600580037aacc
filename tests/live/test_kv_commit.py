"""KV memory is taken beside everything else; if there is too little of it, that is told."""

import gc
import mmap
import os
import threading

import pytest

from antiphon.errors import UsageError
from antiphon.live.kv_commit import KvCommit
from antiphon.store.transfer import OwnedRegion
from antiphon.types import KvShape

SHAPE = KvShape(
    layout="test", page_tokens=16, block_tokens=64, page_bytes=16 * mmap.PAGESIZE, pages=64
)


def taken(owner: OwnedRegion) -> int:
    return os.fstat(owner.fd).st_blocks * 512 - owner.header.pages_at


def test_all_of_it_is_there_in_the_end() -> None:
    region = OwnedRegion(SHAPE, commit=False)
    KvCommit(region).done.result(60)
    assert taken(region) == SHAPE.pages * SHAPE.page_bytes
    region.close()


class Slow(OwnedRegion):
    """Each call waits until it is let."""

    def __init__(self) -> None:
        super().__init__(SHAPE, commit=False)
        self.begun, self.let = threading.Event(), threading.Event()
        self.priority = 0

    def back(self, first: int, count: int) -> bool:
        self.priority = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        self.begun.set()
        assert self.let.wait(30)
        return super().back(first, count)


def test_it_stops_when_nobody_will_write_any_more() -> None:
    region = Slow()
    commit = KvCommit(region)
    assert region.begun.wait(30)
    commit.stop()
    region.let.set()
    commit.done.result(60)
    assert 0 < taken(region) < SHAPE.pages * SHAPE.page_bytes
    assert region.priority == 19, "whoever computes goes first"
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19
    region.close()


class Poor(OwnedRegion):
    """The system has memory for its first half."""

    def back(self, first: int, count: int) -> bool:
        return first + count <= SHAPE.pages // 2 and super().back(first, count)


def test_too_little_memory_is_an_error_with_a_remedy() -> None:
    region = Poor(SHAPE, commit=False)
    with pytest.raises(UsageError, match=r"lower kv\.memory_bytes"):
        KvCommit(region).done.result(60)
    region.close()
    gc.collect()


def test_a_system_without_threads_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    region = OwnedRegion(SHAPE, commit=False)
    with monkeypatch.context() as patch, pytest.raises(UsageError, match=r"new thread.*ulimit -u"):
        patch.setattr(threading.Thread, "start", none_left)
        KvCommit(region)
    region.close()
