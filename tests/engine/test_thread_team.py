"""Kernels on torch's threads, and the cores they may use."""

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

from antiphon.engine.thread_team import ThreadTeam, use_cores
from antiphon.errors import UsageError


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_thread_runs_once_with_its_own_number(
    threads: int, torch_threads: Callable[[int], None]
) -> None:
    seen, lock = [], threading.Lock()

    def kernel(thread: int, count: int) -> None:
        with lock:
            seen.append((thread, count))

    torch_threads(threads)
    for _ in range(20):
        seen.clear()
        ThreadTeam().run(kernel)
        # OpenMP may give fewer threads than were asked for, but always whole shares.
        assert sorted(seen) == [(n, len(seen)) for n in range(len(seen))]
        assert 1 <= len(seen) <= threads


def test_threads_wait_for_each_other_at_the_barrier(torch_threads: Callable[[int], None]) -> None:
    """Nobody leaves a round before all have entered it."""
    team = ThreadTeam()
    if team.barrier == 0:
        pytest.skip("there is no OpenMP library: one thread runs alone")
    meet = ctypes.CFUNCTYPE(None)(team.barrier)  # releases the interpreter lock while it waits
    entered = [0, 0]
    wrong = []

    def kernel(thread: int, threads: int) -> None:
        for number in range(1, 51):
            entered[thread] = number
            meet()
            wrong.extend(count for count in entered[:threads] if count < number)
            meet()

    torch_threads(2)
    team.run(kernel)
    assert entered[0] == 50
    assert not wrong


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_on_any_thread_is_raised_after_all_have_finished(
    threads: int, torch_threads: Callable[[int], None]
) -> None:
    finished = []

    def kernel(thread: int, count: int) -> None:
        finished.append(thread)
        if thread == count - 1:
            raise ZeroDivisionError

    torch_threads(threads)
    with pytest.raises(ZeroDivisionError):
        ThreadTeam().run(kernel)
    assert len(finished) in (1, threads)


def test_without_the_library_the_calling_thread_does_it_all(
    monkeypatch: pytest.MonkeyPatch, torch_threads: Callable[[int], None]
) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    seen: list[tuple[int, int]] = []
    torch_threads(2)
    ThreadTeam().run(lambda thread, threads: seen.append((thread, threads)))
    assert seen == [(0, 1)]


def in_a_process(code: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OMP_")}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout.strip()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="pins threads on Linux only")
def test_cores_pin_the_thread_and_set_torchs_threads() -> None:
    core = min(os.sched_getaffinity(0))
    found = in_a_process(
        "import os, torch; from antiphon.engine import use_cores;"
        f"print(use_cores([{core}]), os.sched_getaffinity(0), torch.get_num_threads())"
    )
    assert found == f"1 {{{core}}} 1"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="pins threads on Linux only")
def test_no_cores_means_all_that_the_process_may_use() -> None:
    count = len(os.sched_getaffinity(0))
    found = in_a_process(
        "import torch; from antiphon.engine import use_cores;"
        "print(use_cores([]), torch.get_num_threads())"
    )
    assert found == f"{count} {count}"


def test_importing_the_engine_changes_nothing_but_how_openmp_waits_and_mkl_adds() -> None:
    """Each only if the user has not said it."""
    said = "os.environ.update(GOMP_SPINCOUNT='7', MKL_CBWR='AUTO')"
    left = "[os.environ.pop(name, 0) for name in ('GOMP_SPINCOUNT', 'MKL_CBWR')]"
    for before, allowed in ((said, set()), (left, {"GOMP_SPINCOUNT", "MKL_CBWR"})):
        found = in_a_process(
            f"import os, torch; {before}; now = lambda: set(os.environ.items());"
            "threads, old = torch.get_num_threads(), now(); import antiphon.engine;"
            "assert threads == torch.get_num_threads(); print(*dict(now() ^ old))"
        )
        assert set(found.split()) <= allowed


def test_a_core_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"engine\.cores: core 9999"):
        use_cores([9999])


def test_shares_cover_the_work(torch_threads: Callable[[int], None]) -> None:
    done = np.zeros(1000, np.int64)

    def kernel(thread: int, threads: int) -> None:
        done[thread::threads] += 1

    torch_threads(2)
    ThreadTeam().run(kernel)
    assert (done == 1).all()
