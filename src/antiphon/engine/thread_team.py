"""The cores that a forward pass runs on: torch's threads, and our kernels on the same threads."""

import ctypes
import os
from collections.abc import Callable, Sequence

import torch

from antiphon.errors import UsageError


def use_cores(cores: Sequence[int]) -> int:
    """Pin the calling thread to `cores` (empty: keep all that it may use); return their number.

    Sets torch's thread count to that number. Threads that the calling thread starts from now on,
    torch's own among them, inherit the cores, so call it in the thread that runs `forward`, before
    its first pass. Raises `UsageError` for a core that this process may not use.
    """
    if not hasattr(os, "sched_setaffinity"):
        if cores:
            raise UsageError("engine.cores: this operating system can't pin a thread to cores")
        count = os.cpu_count() or 1
    else:
        allowed = os.sched_getaffinity(0)
        for core in cores:
            if core not in allowed:
                listed = ",".join(map(str, sorted(allowed)))
                raise UsageError(f"engine.cores: core {core} is not one of {listed}")
        if cores:
            os.sched_setaffinity(0, cores)
        count = len(set(cores)) or len(allowed)
    torch.set_num_threads(count)
    return count


class ThreadTeam:
    """Runs a kernel on all of torch's threads at once.

    It borrows the OpenMP team that torch's matrix products run on (GNU OpenMP, which torch carries
    on Linux). Threads of our own would fight for the cores with torch's, which spin for a while
    after each product. Where that library is absent the kernel runs on the calling thread alone:
    slower, same result.
    """

    def __init__(self) -> None:
        try:
            # torch has loaded its copy already; the name finds that one.
            self._openmp = ctypes.CDLL("libgomp.so.1")
            self._inside = ctypes.PyDLL("libgomp.so.1")
        except OSError:
            self._openmp = self._inside = None

    @property
    def barrier(self) -> int:
        """Address of the C function `void f(void)` at which the team's threads wait for each other.

        0 where `run` uses one thread only. Every thread must call it equally often in a `run`.
        """
        if self._openmp is None:
            return 0
        return ctypes.cast(self._openmp.GOMP_barrier, ctypes.c_void_p).value or 0

    def run(self, kernel: Callable[[int, int], None]) -> None:
        """Call `kernel(thread, threads)` once per thread, concurrently; return when all are done.

        Kernels that release the interpreter lock run in parallel. The first exception is raised
        here after the others have finished.
        """
        threads = torch.get_num_threads()
        if threads == 1 or self._openmp is None or self._inside is None:
            kernel(0, 1)
            return
        inside = self._inside
        failures: list[BaseException] = []

        def member(_: int | None) -> None:
            try:
                kernel(inside.omp_get_thread_num(), inside.omp_get_num_threads())
            except BaseException as failure:  # noqa: BLE001 - ctypes would swallow it
                failures.append(failure)

        self._openmp.GOMP_parallel(_MEMBER(member), None, threads, 0)
        if failures:
            raise failures[0]


_MEMBER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
