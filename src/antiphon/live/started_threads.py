"""Threads that run from the start, so that later nothing fails for want of one.

An executor starts its threads as work comes. Where the system has none left then, the work fails,
and lies in the executor's queue all the same, for a thread that comes later: it would write into
memory that is somebody else's by then.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from antiphon.errors import UsageError


def started_threads(count: int, name: str) -> ThreadPoolExecutor:
    """An executor whose threads all run. Raises `UsageError`: the system has no more threads."""
    made = ThreadPoolExecutor(count, thread_name_prefix=name)
    all_here = threading.Barrier(count + 1)
    try:
        waiting = [made.submit(all_here.wait) for _ in range(count)]
    except RuntimeError as error:
        all_here.abort()
        made.shutdown(wait=False, cancel_futures=True)
        raise UsageError(
            f"{error}: this user, or the container, has too many: raise its limit (ulimit -u, "
            f"pids.max), or run less here"
        ) from None
    all_here.wait()
    for one in waiting:
        one.result()
    return made


@contextmanager
def ended_unless(made: ThreadPoolExecutor) -> Iterator[None]:
    """What is made in here is to own these threads: they end if it can't be made."""
    try:
        yield
    except BaseException:
        made.shutdown(wait=False)
        raise
