"""Keys or values of some layers as rows of float32, one a token; keys without their rotation.

    block [pages, layers, 2, heads, page_tokens, width]  ⇄  rows [tokens, layers · heads · width]

Before the rotary embedding a channel of keys means the same at every position: it has a mean, and
neighbours that it goes with, which rotation smears. Turning back is exact but for rounding, far
below that of bfloat16 pages. Pairs are (i, i + head_dim / 2), as the engine has them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .block_shape import BlockShape
from .elements import as_element, as_float
from .kernel import kernel

Floats = npt.NDArray[np.float32]


class Part(NamedTuple):
    """Which rows: `side` 0 keys, 1 values; so many layers from `first` on."""

    side: int
    first: int
    layers: int


class Rotation(NamedTuple):
    """Cosines and sines of a block's positions: float32 [tokens, head_dim / 2]."""

    cosines: Floats
    sines: Floats


def rotation(frequencies: Floats, start: int, tokens: int) -> Rotation:
    """The angles of positions `start` …; as the engine takes them (angles in float32)."""
    positions = np.arange(start, start + tokens).astype(np.float32)
    angles = np.outer(positions, frequencies).astype(np.float32).astype(np.float64)
    return Rotation(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))


def read_rows(block: npt.NDArray, shape: BlockShape, part: Part, turn: Rotation) -> Floats:
    """Rows of a block."""
    rows = np.empty((shape.tokens, part.layers * shape.heads * shape.width), np.float32)
    _read(block.reshape(-1), *shape.numbers, part, turn, rows)
    return rows


def write_rows(
    rows: Floats, block: npt.NDArray, shape: BlockShape, part: Part, turn: Rotation
) -> None:
    """The other way; `block` is C-contiguous."""
    _write(np.ascontiguousarray(rows), block.reshape(-1), *shape.numbers, part, turn)


@kernel
def _read(elements, pages, layers, heads, page_tokens, width, part, turn, rows):
    half = turn.cosines.shape[1] if part.side == 0 else 0
    for layer in range(part.layers):
        for head in range(heads):
            to = (layer * heads + head) * width
            for token in range(pages * page_tokens):
                page, slot = token // page_tokens, token % page_tokens
                tile = ((page * layers + part.first + layer) * 2 + part.side) * heads + head
                at = (tile * page_tokens + slot) * width
                for c in range(half):
                    x, y = as_float(elements[at + c]), as_float(elements[at + half + c])
                    cosine, sine = turn.cosines[token, c], turn.sines[token, c]
                    rows[token, to + c] = x * cosine + y * sine
                    rows[token, to + half + c] = y * cosine - x * sine
                for c in range(2 * half, width):
                    rows[token, to + c] = as_float(elements[at + c])


@kernel
def _write(rows, elements, pages, layers, heads, page_tokens, width, part, turn):
    half = turn.cosines.shape[1] if part.side == 0 else 0
    like = elements[0]
    for layer in range(part.layers):
        for head in range(heads):
            to = (layer * heads + head) * width
            for token in range(pages * page_tokens):
                page, slot = token // page_tokens, token % page_tokens
                tile = ((page * layers + part.first + layer) * 2 + part.side) * heads + head
                at = (tile * page_tokens + slot) * width
                for c in range(half):
                    x, y = rows[token, to + c], rows[token, to + half + c]
                    cosine, sine = turn.cosines[token, c], turn.sines[token, c]
                    elements[at + c] = as_element(x * cosine - y * sine, like)
                    elements[at + half + c] = as_element(y * cosine + x * sine, like)
                for c in range(2 * half, width):
                    elements[at + c] = as_element(rows[token, to + c], like)
