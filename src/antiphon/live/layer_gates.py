"""Layers that come one group after the other: who brings them opens gates, who needs them waits.

copy thread ──open(1), open(2) …──► LayerGates ◄──wait(0), wait(1) …── engine thread
"""

import threading
import time
from collections.abc import Callable

from antiphon.store.transfer import LEAST_BYTES, STRIPE_BYTES, Part
from antiphon.types import Seconds


def group_starts(layers: int, page_bytes: int, most: int) -> tuple[int, ...]:
    """The first layer of each of at most `most` groups of about equal size; one if it can't be cut.

    What is copied at once is at least `LEAST_BYTES`, in whole stripes.
    """
    layer_bytes = page_bytes // max(1, layers)
    if layers < 1 or page_bytes % layers or layer_bytes % STRIPE_BYTES:
        return (0,)
    groups = max(1, min(most, layers, page_bytes // LEAST_BYTES))
    starts = tuple(layers * group // groups for group in range(groups))
    sizes = (end - start for start, end in zip(starts, (*starts[1:], layers), strict=True))
    return starts if min(sizes) * layer_bytes >= LEAST_BYTES else (0,)


def parts_of(starts: tuple[int, ...], layers: int, page_bytes: int) -> tuple[Part, ...]:
    """The bytes of each group in a page, which is one run over all layers."""
    layer_bytes = page_bytes // layers
    return tuple(
        Part(start * layer_bytes, end * layer_bytes, last=end == layers)
        for start, end in zip(starts, (*starts[1:], layers), strict=True)
    )


class LayerGates:
    """The gates of one fetch. `open` and `close` from any thread."""

    def __init__(
        self, starts: tuple[int, ...], clock: Callable[[], Seconds] = time.monotonic
    ) -> None:
        self.starts = starts
        self._clock = clock
        self._news = threading.Condition()
        self._here = 0
        self._closed = False

    def open(self, here: int) -> None:
        """So many groups are here; the last one only when all pages are proven."""
        with self._news:
            self._here = here
            self._news.notify_all()

    def close(self) -> None:
        """No more will come. What is open stays so."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def waiting(self, wait_s: Seconds) -> "LayerWait":
        """For one step, which waits at most so long in all."""
        return LayerWait(self, wait_s)

    def wait(self, group: int, wait_s: Seconds) -> tuple[bool, Seconds]:
        """Whether the group is here, or came within `wait_s`; and how long that took."""
        began = self._clock()
        with self._news:
            self._news.wait_for(lambda: self._here > group or self._closed, max(0.0, wait_s))
            return self._here > group, self._clock() - began


class LayerWait:
    """Implements `ComingKv`. For one thread."""

    def __init__(self, gates: LayerGates, wait_s: Seconds) -> None:
        self._gates = gates
        self._left_s = wait_s

    @property
    def starts(self) -> tuple[int, ...]:
        """See `ComingKv`."""
        return self._gates.starts

    def wait(self, group: int) -> bool:
        """See `ComingKv`."""
        here, waited_s = self._gates.wait(group, self._left_s)
        self._left_s -= waited_s
        return here
