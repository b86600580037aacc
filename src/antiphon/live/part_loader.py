"""Pages that come from another host, taken to a device while the rest of them is on its way.

    streams ──here(1), here(2) …──► PartLoad ──one thread──► StagedRegion.load ──► device

The first part of all pages, their first layers, is copied while later ones come over the network
(layer-wise transfer: Splitwise §4.3). Until all is proven the device's pages count as old: whatever
ends a pull early, nobody reads what was loaded of it.
"""

from collections.abc import Sequence
from concurrent.futures import Future, wait

import numpy as np

from antiphon.types import PageId

from .layer_gates import group_starts, parts_of
from .staged_region import StagedRegion
from .started_threads import started_threads

_PARTS = 4
"""Of a page at most: what is left to be copied when all is here is about this share of it."""


class PartLoader:
    """For all pulls of a worker whose pages are on a device. `parts`: in which they should come."""

    def __init__(self, region: StagedRegion) -> None:
        """Raises `UsageError`: the system has no more threads."""
        page_bytes, layers = region.shape.page_bytes, region.layers
        starts = group_starts(layers, page_bytes, _PARTS)
        self.parts = parts_of(starts, layers, page_bytes)
        self._region = region
        self._thread = started_threads(1, "kv-load")

    def begin(self, targets: Sequence[PageId]) -> "PartLoad":
        """For one pull into these pages."""
        return PartLoad(self, np.array(targets, np.int64))

    def queue(self, pages: np.ndarray, first: int, end: int) -> "Future[None]":
        """Load the parts from `first` up to `end`, on the thread."""
        return self._thread.submit(
            self._region.load, pages, self.parts[first].start, self.parts[end - 1].end
        )

    def loaded(self, pages: np.ndarray) -> None:
        """All parts of these pages are on the device."""
        self._region.loaded(pages)

    def close(self) -> None:
        """After the last pull. Waits for what is copied."""
        self._thread.shutdown()


class PartLoad:
    """What of one pull is on the device."""

    def __init__(self, loader: PartLoader, pages: np.ndarray) -> None:
        self._loader = loader
        self._pages = pages
        self._queued = 0
        self._running: list[Future[None]] = []

    def here(self, parts: int) -> None:
        """So many parts of all pages are here, the last one proven. One call at a time; returns at
        once."""
        self._running.append(self._loader.queue(self._pages, self._queued, parts))
        self._queued = parts

    def finish(self) -> None:
        """Nothing more comes, and `here` is not called any more: wait for what is being copied.

        If all has come the device's pages are current now. Raises what the device raised; then,
        too, nothing reads or writes these pages any more.
        """
        wait(self._running)
        for copying in self._running:
            copying.result()
        if self._queued == len(self._loader.parts):
            self._loader.loaded(self._pages)
