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
from .sines import cosines_and_sines

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
    cosines, sines = cosines_and_sines(angles)
    return Rotation(cosines.astype(np.float32), sines.astype(np.float32))


def read_rows(
    block: npt.NDArray, shape: BlockShape, part: Part, turn: Rotation, mean: Floats | None = None
) -> Floats:
    """Rows of a block, less `mean` [layers · heads · width]."""
    channels = part.layers * shape.heads * shape.width
    rows = np.empty((shape.tokens, channels), np.float32)
    mean = np.zeros(channels, np.float32) if mean is None else mean
    _read(block.reshape(-1), *shape.numbers, part, turn, mean, rows)
    return rows


def write_rows(
    rows: Floats, block: npt.NDArray, shape: BlockShape, part: Part, turn: Rotation
) -> None:
    """The other way; `block` is C-contiguous, and rows may be longer than they must."""
    _write(np.ascontiguousarray(rows), block.reshape(-1), *shape.numbers, part, turn)


# As in `integers`: rows are slices whose elements are counted from 0, and a loop writes to one of
# them only: where more pointers may meet than LLVM compares, nothing is done in vectors.


@kernel
def _plain(source, mean, row):
    for c in range(len(row)):
        row[c] = as_float(source[c]) - mean[c]


@kernel
def _turned_back(source, cosines, sines, mean, row):
    half = len(cosines)
    upper, upper_mean, upper_row = source[half:], mean[half:], row[half:]
    for c in range(half):
        row[c] = as_float(source[c]) * cosines[c] + as_float(upper[c]) * sines[c] - mean[c]
    for c in range(half):
        turned = as_float(upper[c]) * cosines[c] - as_float(source[c]) * sines[c]
        upper_row[c] = turned - upper_mean[c]


@kernel
def _read(elements, pages, layers, heads, page_tokens, width, part, turn, mean, rows):
    half = turn.cosines.shape[1] if part.side == 0 else 0
    for layer in range(part.layers):
        for head in range(heads):
            to = (layer * heads + head) * width
            mine = mean[to : to + width]
            for token in range(pages * page_tokens):
                page, slot = token // page_tokens, token % page_tokens
                tile = ((page * layers + part.first + layer) * 2 + part.side) * heads + head
                at = (tile * page_tokens + slot) * width
                source, row = elements[at : at + width], rows[token, to : to + width]
                if half:
                    _turned_back(source, turn.cosines[token], turn.sines[token], mine, row)
                _plain(source[2 * half :], mine[2 * half :], row[2 * half :])


@kernel
def _write_plain(row, target):
    like = target[0]
    for c in range(len(target)):
        target[c] = as_element(row[c], like)


@kernel
def _write_turned(row, cosines, sines, target):
    half = len(cosines)
    like = target[0]
    upper, upper_target = row[half:], target[half:]
    for c in range(half):
        target[c] = as_element(row[c] * cosines[c] - upper[c] * sines[c], like)
    for c in range(half):
        upper_target[c] = as_element(upper[c] * cosines[c] + row[c] * sines[c], like)


@kernel
def _write(rows, elements, pages, layers, heads, page_tokens, width, part, turn):
    half = turn.cosines.shape[1] if part.side == 0 else 0
    for layer in range(part.layers):
        for head in range(heads):
            to = (layer * heads + head) * width
            for token in range(pages * page_tokens):
                page, slot = token // page_tokens, token % page_tokens
                tile = ((page * layers + part.first + layer) * 2 + part.side) * heads + head
                at = (tile * page_tokens + slot) * width
                row, target = rows[token, to : to + width], elements[at : at + width]
                if half:
                    _write_turned(row, turn.cosines[token], turn.sines[token], target)
                if 2 * half < width:
                    _write_plain(row[2 * half :], target[2 * half :])
