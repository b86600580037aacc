"""What holds for all tests, and for the processes that they start."""

import gc
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

# This tree's package comes first in child processes too.
_SOURCE = str(Path(__file__).parents[1] / "src")
os.environ["PYTHONPATH"] = os.pathsep.join([_SOURCE, *filter(None, [os.getenv("PYTHONPATH")])])

# Tests may load torch before `antiphon.engine` does: see `engine/spin_limit.py`. (`mkl_mode` is in
# time: tests multiply when all are imported.)
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

# A shell that starts the tests in the background has them ignore Ctrl-C, and all that they start
# too: a process that is sent it would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_searched: Path | None = None
"""The file before whose tests all that lived was set aside."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What modules, and fixtures that stay, have made is set aside before each file's tests: a
    search for cycles in all of it takes a second, and many tests, and runs, ask for one."""
    global _searched
    if item.path != _searched:
        gc.collect()
        gc.freeze()
        _searched = item.path


_MEASURED = {Path(__file__).parent / part for part in ("core", "wire")}
_BY_THE_HUNDRED = (
    "_laws",
    "_machine",
    "_book_faults",
    "_controls",
    "_loads",
    "_queueing",
    "_hot_prefix",
)
"""How files end whose tests play many drawn histories, or long ones."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """`core/` is covered by examples, which are quick, and by tests that record and replay it.
    Whatever else runs it, such as a simulation or a law on many histories, is there for other
    reasons, and takes twice as long if it is measured."""
    for item in items:
        many = item.path.stem.endswith(_BY_THE_HUNDRED)
        if many or _MEASURED.isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.no_cover)
