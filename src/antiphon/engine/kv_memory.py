"""KV memory: pages of keys and values, one page one contiguous run over all layers."""

import mmap
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, assert_never

import numpy as np
import numpy.typing as npt
import torch

from antiphon.checkpoint import ModelSpec
from antiphon.errors import BugError, UsageError
from antiphon.host import available_bytes
from antiphon.types import KvGroup, PageCopy, PageId

from .layer_split import LayerSplit, split_of
from .linear import whole_vectors

_LARGEST_PAGE_TOKENS = 64


class KvDtype(Enum):
    """What keys and values are kept as, and with it how attention over them is computed."""

    FP32 = "fp32"
    """Attention in float32."""
    BF16 = "bf16"
    """The upper half of a float32, rounded to nearest even: half the memory, 8 bits kept.
    Attention in whole numbers (docs/decisions/0008-attention-in-whole-numbers.md)."""

    @property
    def torch_dtype(self) -> torch.dtype:
        """The same in torch."""
        match self:
            case KvDtype.FP32:
                return torch.float32
            case KvDtype.BF16:
                return torch.bfloat16
            case other:
                assert_never(other)


def kv_dtype_of(kv_dtype: str, model_dtype: str) -> KvDtype:
    """The type that `kv.dtype` asks for; "auto": fp32 for a model in fp32, bf16 for any other."""
    if kv_dtype == "auto":
        return KvDtype.FP32 if model_dtype == "fp32" else KvDtype.BF16
    return KvDtype(kv_dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """Where a token's keys and values lie. Offsets and strides count elements of `dtype`.

    A page is [layers, 2 (keys, values), kv_heads, page_tokens, head_width]: whole for copies and
    transfers, and within a layer one head's tokens follow each other, which is how attention reads.
    """

    layers: int
    kv_heads: int
    head_width: int
    """Elements of a head: its size rounded up to whole vectors."""
    page_tokens: int
    dtype: KvDtype = KvDtype.FP32
    split: LayerSplit | None = None
    """How the model's layers are spread over the pages of an entry; None: an entry is a page."""

    @property
    def entry_pages(self) -> int:
        """So many pages together hold `page_tokens` tokens of all layers of the model."""
        return 1 if self.split is None else len(self.split.windows)

    @property
    def groups(self) -> tuple[KvGroup, ...]:
        """Which layers' pages may be given back, and when."""
        return (KvGroup(),) if self.split is None else self.split.groups

    @property
    def homes(self) -> npt.NDArray[np.int64]:
        """[layers of the model, 2]: which page of an entry a layer is in, and which of its layers
        it is there."""
        homes = [(0, layer) for layer in range(self.layers)]
        return np.array(homes if self.split is None else self.split.homes, np.int64)

    @property
    def windows(self) -> tuple[int, ...]:
        """Of each page of an entry: how many positions its layers see back; 0: all, or they differ,
        as they may without a split."""
        return (0,) if self.split is None else self.split.windows

    @property
    def page_shape(self) -> tuple[int, ...]:
        """[layers, 2 (keys, values), kv_heads, page_tokens, head_width]."""
        return self.layers, 2, self.kv_heads, self.page_tokens, self.head_width

    @property
    def layer_stride(self) -> int:
        """Elements of one layer of a page."""
        return 2 * self.kv_heads * self.page_tokens * self.head_width

    @property
    def page_stride(self) -> int:
        """Elements of a page."""
        return self.layers * self.layer_stride

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        return self.page_stride * self.dtype.torch_dtype.itemsize

    @property
    def name(self) -> str:
        """Says in one line what a reader of a page's bytes must know; equal names, equal order."""
        page = (
            f"page[layers={self.layers}, 2, kv_heads={self.kv_heads}, "
            f"page_tokens={self.page_tokens}, width={self.head_width}] {self.dtype.value}"
        )
        if self.split is None or self.entry_pages == 1:
            return page  # the same bytes, whatever windows see
        return f"{page} {self.split.name}"

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values over all layers."""
        return self.entry_pages * self.page_bytes // self.page_tokens


def layout_of(
    spec: ModelSpec,
    page_tokens: int,
    kv_dtype: KvDtype = KvDtype.FP32,
    *,
    windows_apart: bool = False,
) -> KvLayout:
    """The layout of a model's KV. Raises `UsageError` if `page_tokens` is not in 1 … 64.

    `windows_apart`: layers with sliding windows have pages of their own, if there are such layers.
    """
    if not 1 <= page_tokens <= _LARGEST_PAGE_TOKENS:
        raise UsageError(
            f"kv.page_tokens is {page_tokens}, but must lie in 1 … {_LARGEST_PAGE_TOKENS}"
        )
    split = split_of(spec.windows) if windows_apart else None
    return KvLayout(
        layers=spec.layers if split is None else split.page_layers,
        kv_heads=spec.kv_heads,
        head_width=whole_vectors(spec.head_dim),
        page_tokens=page_tokens,
        dtype=kv_dtype,
        split=split,
    )


class KvArea(Protocol):
    """Memory that somebody else has set aside for KV, and who wants to know what is written."""

    @property
    def content(self) -> npt.NDArray[np.uint8]:
        """At least as many bytes as the pages need, zero at first."""
        ...

    def begin_write(self, pages: npt.NDArray[np.int64]) -> None:
        """`pages`, of which some may repeat, are about to be written."""
        ...


class PagedKv(ABC):
    """`pages` pages of one layout, wherever they lie; the kernels that read them know how.

    `tensor` [pages, layers, 2, kv_heads, page_tokens, head_width] of the layout's dtype. Whoever
    writes to it calls `begin_write` first.
    """

    def __init__(self, layout: KvLayout, pages: int, tensor: torch.Tensor) -> None:
        self.layout = layout
        self.homes = layout.homes
        self.pages = pages
        self.tensor = tensor

    @abstractmethod
    def begin_write(self, pages: npt.NDArray[np.int64]) -> None:
        """Say that `pages`, of which some may repeat, are about to be written."""

    def copy(self, copies: tuple[PageCopy, ...]) -> None:
        """Copy whole pages, in order. Raises `BugError` for a page that does not exist."""
        if not copies:
            return
        for copy in copies:
            self.check(copy.source)
            self.check(copy.target)
        self.begin_write(np.array([copy.target for copy in copies], np.int64))
        for copy in copies:
            self.tensor[copy.target] = self.tensor[copy.source]

    def check(self, page: PageId) -> None:
        """Raise `BugError` unless `page` exists: a kernel would read or write other memory."""
        if not 0 <= page < self.pages:
            raise BugError(f"page {page} does not exist: the KV memory has {self.pages} pages")


class KvMemory(PagedKv):
    """Pages in `area` or, without one, in memory of this process alone.

    `flat` is `tensor` in one dimension, `elements` the same for kernels: float32, or bfloat16 as
    uint16. Zero at first.
    """

    def __init__(self, layout: KvLayout, pages: int, area: KvArea | None = None) -> None:
        """Raises `UsageError` without `area` if there is no page or not enough memory."""
        if area is None:
            check_available(layout, pages)
            content = _anonymous(pages * layout.page_bytes)
        else:
            content = torch.from_numpy(area.content[: pages * layout.page_bytes])
        self._area = area
        self.flat = content.view(layout.dtype.torch_dtype)
        bits = self.flat if layout.dtype is KvDtype.FP32 else self.flat.view(torch.uint16)
        self.elements: np.ndarray = bits.numpy()
        super().__init__(layout, pages, self.flat.view(pages, *layout.page_shape))

    def begin_write(self, pages: npt.NDArray[np.int64]) -> None:
        """See `PagedKv`."""
        if self._area is not None:
            self._area.begin_write(pages)


def check_available(layout: KvLayout, pages: int) -> None:
    """Raise `UsageError` unless there is at least a page, and memory for all of them."""
    if pages < 1:
        raise UsageError(
            f"the KV memory must hold at least one page of {layout.page_bytes} bytes: "
            "raise kv.memory_bytes (--kv-memory)"
        )
    needed, available = pages * layout.page_bytes, available_bytes()
    if needed > available:
        raise UsageError(
            f"kv.memory_bytes: {needed} bytes of KV memory are asked for, but this machine "
            f"(or its container) has only {available} bytes free: "
            "lower kv.memory_bytes (--kv-memory)"
        )


def _anonymous(size: int) -> torch.Tensor:
    """`size` zero bytes that the operating system gives as they are first touched.

    Like a shared region, and as fast: where the system is set so, in huge pages. What those would
    gain otherwise is in docs/decisions/0005-kv-memory-is-a-memfd.md.
    """
    area = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without huge pages: slower, nothing else
            area.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(area, dtype=torch.uint8)
