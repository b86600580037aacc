"""A worker's shared region whose pages are copies of a device's.

Others know no device: they map this memory, or are sent it, page for page. Before pages are sealed
for them their content comes from the device; before anybody writes to pages, the device's copy
counts as old. Why so: docs/decisions/0024-devices.md.
"""

from collections.abc import Sequence

from antiphon.engine import DeviceKv
from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.generations import Pages
from antiphon.types import KvShape, OfferedPage, PageId


class StagedRegion(OwnedRegion):
    """An `OwnedRegion` for the KV memory that `attach` is told of."""

    def __init__(self, shape: KvShape, *, commit: bool = True) -> None:
        """See `OwnedRegion`."""
        self._memory: DeviceKv | None = None
        super().__init__(shape, commit=commit)

    def attach(self, memory: DeviceKv) -> None:
        """The pages of `memory`, which has this region as its area, are what is shared here."""
        self._memory = memory

    @property
    def layers(self) -> int:
        """Of which a page is a run, in equal parts."""
        return 1 if self._memory is None else self._memory.layout.layers

    def load(self, pages: Pages, start: int, end: int) -> None:
        """Copy bytes of pages to the device, where nobody reads them before `loaded`."""
        if self._memory is not None:
            self._memory.load(pages, start, end)

    def loaded(self, pages: Pages) -> None:
        """All bytes of these pages, as they are now, were loaded."""
        if self._memory is not None:
            self._memory.loaded(pages)

    def back_each(self, pages: Sequence[PageId] | Pages) -> bool:
        """See `OwnedRegion`: whoever writes to pages calls it before. Those of the device are old
        from now on; `DeviceKv.begin_write` says otherwise of what the engine writes."""
        if self._memory is not None:
            self._memory.host_writes(pages)
        return super().back_each(pages)

    def seal(self, pages: Sequence[PageId]) -> tuple[OfferedPage, ...]:
        """See `OwnedRegion`. Copies those pages here that the device alone has."""
        if self._memory is not None:
            self._memory.to_host(pages)
        return super().seal(pages)
