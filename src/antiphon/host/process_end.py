"""How the processes of one command end: those that it has started end with it, and no earlier."""

import ctypes
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1


class Terminated(KeyboardInterrupt):
    """SIGTERM came: a command ends as it does with Ctrl-C, and says another exit code."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises `Terminated` meanwhile, in the main thread, where this is called."""

    def came(_number: int, _frame: Any) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, came)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end_with_parent() -> None:
    """For processes that compute for another one, at their begin.

    What ends a command (Ctrl-C, `timeout`, a batch system) often reaches all of its processes: who
    started them decides. If that one is killed they are, too, also if it was before this call.
    """
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    die_with_parent(signal.SIGKILL)
    import multiprocessing  # in such processes it is loaded, in servers it need not be

    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        signal.raise_signal(signal.SIGKILL)


def die_with_parent(number: signal.Signals) -> None:
    """Where the system can: get this signal when the thread that started this process ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
