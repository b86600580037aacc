"""Processes that compute for this one, and end with it, whatever ends it."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from .process_end import end_with_parent


@contextmanager
def process_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """So many, each of which imports anew what it is to call.

    What they are at comes to its end when the block does. If it is left by an exception (Ctrl-C, or
    SIGTERM within `terminable`), or by a signal that ends this process, they end at once. To be
    called from the main thread: Linux tells processes of their parent thread's end.
    """
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(
        processes, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent
    )
    try:
        yield pool
    except BaseException:
        # Nobody wants what is still being computed.
        for process in multiprocessing.active_children():
            if process not in others:
                process.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
