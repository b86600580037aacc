"""KV pages in a device's own memory, and their copies in an area that others read and write.

    engine ──writes──► device page ──to_host──► area's page ◄── other workers, the store
                            ▲                        │
                            └────────bring───────────┘

Page n of the area is the copy of page n of the device. Which of both is current is known for each
page: what the engine computes is on the device until somebody asks for it, what others bring is in
the area until the engine reads it. Why so: docs/decisions/0024-devices.md.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from antiphon.errors import UsageError
from antiphon.types import PageCopy, PageId

from ..kv_memory import KvArea, KvLayout, PagedKv

Pages = npt.NDArray[np.int64]


class Current(IntEnum):
    """Where a page's content is."""

    BOTH = 0
    """Or nobody has written it."""
    DEVICE = 1
    HOST = 2


class PageMover(Protocol):
    """Copies pages between a device and memory of this process; `device`, `host` uint8 [pages,
    page_bytes]."""

    def to_host(self, pages: Pages) -> None:
        """When this returns, they are there."""
        ...

    def to_device(self, pages: Pages, start: int = 0, end: int | None = None) -> None:
        """When this returns, these bytes of each are there. Calls may come from two threads."""
        ...


class PlainMover:
    """Implements `PageMover` for any device: waits for each copy."""

    def __init__(self, device: torch.Tensor, host: torch.Tensor) -> None:
        self._device = device
        self._host = host

    def to_host(self, pages: Pages) -> None:
        """See `PageMover`."""
        wanted = torch.from_numpy(pages)
        there = self._device.index_select(0, wanted.to(self._device.device))
        self._host.index_copy_(0, wanted, there.cpu())

    def to_device(self, pages: Pages, start: int = 0, end: int | None = None) -> None:
        """See `PageMover`."""
        wanted = torch.from_numpy(pages)
        here = self._host[:, start:end].index_select(0, wanted).to(self._device.device)
        self._device[:, start:end].index_copy_(0, wanted.to(self._device.device), here)


class DeviceKv(PagedKv):
    """`pages` pages on `device`, zero at first, and one more, `nobodys_page`, for rows that fill a
    step up; `layers` [layers of a page][pages + 1, 2, kv_heads, page_tokens, head_width].

    With an `area` others have them too: whoever writes to the area's pages calls `host_writes`
    before, whoever reads them `to_host`. Calls about different pages may come from different
    threads.
    """

    def __init__(
        self,
        layout: KvLayout,
        pages: int,
        device: torch.device,
        area: KvArea | None = None,
        mover: Callable[[torch.Tensor, torch.Tensor], PageMover] = PlainMover,
    ) -> None:
        """Raises `UsageError` if the device has not the memory."""
        try:
            flat = torch.zeros((pages + 1) * layout.page_bytes, dtype=torch.uint8, device=device)
        except RuntimeError as error:  # torch's CPU allocator has no type of its own for this
            raise UsageError(
                f"engine.device = {device} (--device): no memory there for {pages} pages of "
                f"{layout.page_bytes} bytes: lower kv.memory_bytes (--kv-memory)"
            ) from error
        self.flat = flat.view(layout.dtype.torch_dtype)
        whole = self.flat.view(pages + 1, *layout.page_shape)
        super().__init__(layout, pages, whole[:pages])
        self.device = device
        self.nobodys_page: PageId = pages
        self.layers = whole.unbind(1)
        self._area = area
        self._current = np.full(pages, Current.BOTH, np.uint8)
        self._mover: PageMover | None = None
        if area is not None:
            size = pages * layout.page_bytes
            host = torch.from_numpy(area.content[:size]).view(pages, -1)
            self._mover = mover(flat.view(pages + 1, -1)[:pages], host)

    def begin_write(self, pages: Pages) -> None:
        """See `PagedKv`. What the area has of them alone comes here first."""
        if self._area is None:
            return
        self.bring(pages)
        self._area.begin_write(pages)
        self._current[pages] = Current.DEVICE

    def copy(self, copies: tuple[PageCopy, ...]) -> None:
        """See `PagedKv`."""
        for copy in copies:
            self.check(copy.source)
        self.bring(np.array([copy.source for copy in copies], np.int64))
        super().copy(copies)

    def bring(self, pages: Pages) -> None:
        """Before these are read on the device."""
        if self._mover is not None and len(wanted := self._of(pages, Current.HOST)):
            self._mover.to_device(wanted)
            self._current[wanted] = Current.BOTH

    def to_host(self, pages: Sequence[PageId] | Pages) -> None:
        """Before these are read in the area. No step that writes them is under way."""
        if self._mover is not None and len(wanted := self._of(pages, Current.DEVICE)):
            self._mover.to_host(wanted)
            self._current[wanted] = Current.BOTH

    def host_writes(self, pages: Sequence[PageId] | Pages) -> None:
        """These of the area's pages, of which not all need exist, are about to be written."""
        listed = np.asarray(pages, np.int64)
        there = listed[(listed >= 0) & (listed < self.pages)]
        self._current[there] = Current.HOST

    def load(self, pages: Pages, start: int, end: int) -> None:
        """Copy bytes of the area's pages here, which are on their way there: nobody reads these
        pages on the device, and they count as old, before `loaded` or `bring`."""
        if self._mover is not None:
            self._mover.to_device(pages, start, end)

    def loaded(self, pages: Pages) -> None:
        """All bytes of these have been loaded, and nobody has written to them since."""
        self._current[pages] = Current.BOTH

    def current(self, page: PageId) -> Current:
        """Where this page's content is now."""
        return Current(self._current[page])

    def _of(self, pages: Sequence[PageId] | Pages, where: Current) -> Pages:
        """Those that are `where`, each once, ascending."""
        listed = np.asarray(pages, np.int64)
        return np.unique(listed[self._current[listed] == where])
