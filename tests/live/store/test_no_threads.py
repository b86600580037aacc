"""A system that has no thread left costs a worker its store for a while, and ends nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from store_callers import FakeGateway, FakeWorker
from store_kit import served

from antiphon.errors import UsageError
from antiphon.live.started_threads import started_threads


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While it is set no thread of a store can be started."""
    none_left = threading.Event()
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if none_left.is_set() and thread.name.startswith("kv-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    return none_left


def test_all_threads_run_from_the_start(no_threads: threading.Event) -> None:
    with started_threads(3, "kv-test") as made:
        no_threads.set()
        together = threading.Barrier(3)
        assert len({made.submit(together.wait).result for _ in range(3)}) == 3
    with pytest.raises(UsageError, match=r"can't start new thread: .*ulimit"):
        started_threads(2, "kv-test")


def test_without_it_work_that_has_failed_is_done_later(no_threads: threading.Event) -> None:
    """Why: an executor keeps what it could not begin."""
    done: list[int] = []
    with ThreadPoolExecutor(1, thread_name_prefix="kv-late") as lazy:
        no_threads.set()
        with pytest.raises(RuntimeError):
            lazy.submit(done.append, 1)
        no_threads.clear()
        lazy.submit(done.append, 2).result()
    assert done == [1, 2]


async def test_a_worker_is_told_why_and_the_store_goes_on(
    folder: Path, no_threads: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(folder) as path, FakeGateway(path):
        no_threads.set()
        with pytest.raises(Exception, match="new thread"):
            async with FakeWorker(path):
                pass
        no_threads.clear()
        async with FakeWorker(path) as worker:
            keys: Any = await worker.put_prompt(blocks=3)
            assert len(await worker.fetch(keys)) == 3
    assert "ulimit" in caplog.text
