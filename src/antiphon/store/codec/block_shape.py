"""What a block of KV is: so many pages of one layout, in memory as workers have them."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from antiphon.errors import BugError
from antiphon.store.record import ElementType

_DTYPES = {ElementType.FP32: np.dtype(np.float32), ElementType.BF16: np.dtype(np.uint16)}
_ELEMENTS = {"fp32": ElementType.FP32, "bf16": ElementType.BF16}
_LAYOUT = re.compile(
    r"page\[layers=(\d{1,5}), 2, kv_heads=(\d{1,5}), page_tokens=(\d{1,5}), width=(\d{1,5})\] "
    r"(fp32|bf16)"
)
MOST_SIDE = (1 << 16) - 1
"""As headers have them."""
MOST_ELEMENTS = 1 << 30
"""Of a block that is decoded: whatever claims more is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """A block is an array [pages, layers, 2 (keys, values), heads, page_tokens, width].

    C-contiguous; float32, or bfloat16 as uint16. It is a view of pages that follow each other.
    """

    pages: int
    layers: int
    heads: int
    page_tokens: int
    width: int
    element: ElementType

    @classmethod
    def of(cls, block: npt.NDArray) -> Self:
        """The shape of an array. Raises `BugError` if it is no such block."""
        elements = {dtype: element for element, dtype in _DTYPES.items()}
        if block.ndim != 6 or block.shape[2] != 2 or not block.flags.c_contiguous:
            raise BugError(f"{block.shape} is no block [pages, layers, 2, heads, tokens, width]")
        if block.dtype not in elements:
            raise BugError(f"a block holds float32, or bfloat16 as uint16, not {block.dtype}")
        pages, layers, _, heads, page_tokens, width = block.shape
        shape = cls(
            pages=pages,
            layers=layers,
            heads=heads,
            page_tokens=page_tokens,
            width=width,
            element=elements[block.dtype],
        )
        if not shape.is_possible:
            raise BugError(
                f"{block.shape}: a side is 0 or above {MOST_SIDE}, width odd, or it is too large"
            )
        return shape

    @classmethod
    def in_layout(cls, layout: str, pages: int) -> Self | None:
        """The shape of `pages` pages of a layout, by its name (`KvLayout.name`); None: pages of
        that layout can't be encoded."""
        found = _LAYOUT.fullmatch(layout)
        if found is None:
            return None
        layers, heads, page_tokens, width = (int(number) for number in found.groups()[:4])
        shape = cls(
            pages=pages,
            layers=layers,
            heads=heads,
            page_tokens=page_tokens,
            width=width,
            element=_ELEMENTS[found[5]],
        )
        return shape if shape.is_possible else None

    @property
    def is_possible(self) -> bool:
        """No side is 0 or above 65,535, the width is even, and it is not too large."""
        sides = self.numbers
        good = self.element in _DTYPES and min(sides) > 0 and max(sides) <= MOST_SIDE
        return good and self.width % 2 == 0 and self.elements <= MOST_ELEMENTS

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """As kernels take them: pages, layers, heads, page_tokens, width."""
        return self.pages, self.layers, self.heads, self.page_tokens, self.width

    @property
    def tokens(self) -> int:
        """Of the block."""
        return self.pages * self.page_tokens

    @property
    def elements(self) -> int:
        """Numbers of the block."""
        return 2 * self.pages * self.layers * self.heads * self.page_tokens * self.width

    @property
    def dtype(self) -> np.dtype:
        """Of the array."""
        return _DTYPES[self.element]

    def block(self, content: npt.NDArray[np.uint8]) -> npt.NDArray:
        """Bytes that hold such a block, seen as one, in place. Raises `ValueError` for another
        number of bytes."""
        sides = (self.pages, self.layers, 2, self.heads, self.page_tokens, self.width)
        return content.view(self.dtype).reshape(sides)

    @property
    def raw_bytes(self) -> int:
        """Of the array."""
        return self.elements * self.dtype.itemsize
