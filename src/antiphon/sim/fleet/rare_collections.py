"""Python's search for cycles of garbage, made rare while a fleet runs."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (50_000, 20, 100)
"""New objects, then searches of the younger generation, until a generation is searched."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Within it the search for cycles takes hundredths of a run, not an eighth.

    A run keeps millions of objects, and what it drops is no cycle: memory returns by counting. For
    the whole process; as it was before in the end.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
