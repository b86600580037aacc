"""A step's batch as one array of whole numbers for a device, in padded shapes.

One array, so that one copy brings it there; of few different shapes, so that a captured step can be
run again on another batch. What fills it up belongs to nobody: rows of token 0 in the memory's page
that no sequence has, and units that read it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ..batch import Batch
from ..kv_memory import KvLayout
from .shapes import Shapes

_FIELDS = 4
"""Of a row of `Batch.blocks`."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """Sizes of a step, padded; equal ones have equal tensors. `entry`: pages of an entry of a page
    table; `tiles`: for each window, how many tiles of keys its units walk at most."""

    entry: int
    rows: int
    units: int
    query_rows: int
    table: int
    sampled: int
    tiles: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepTensors:
    """Views of one int64 tensor on the device.

    tokens, positions [rows]; pages [entry, rows], slots [rows]: where a row's keys and values go;
    places [rows]: which query of which unit it is, counted over all. queries, own [units,
    query_rows]: the row and the position of each query. highs [units]: the last position of each;
    lows, starts [windows, units]: the first that it sees, and where its first tile begins. tables
    [entry, units, table]: pages. sampled [sampled]: rows.
    """

    shape: StepShape
    tokens: torch.Tensor
    positions: torch.Tensor
    pages: torch.Tensor
    slots: torch.Tensor
    places: torch.Tensor
    queries: torch.Tensor
    own: torch.Tensor
    highs: torch.Tensor
    lows: torch.Tensor
    starts: torch.Tensor
    tables: torch.Tensor
    sampled: torch.Tensor

    @classmethod
    def of(cls, shape: StepShape, packed: torch.Tensor) -> "StepTensors":
        """Of what `pack` has made, on whichever device."""
        sizes = _sizes(shape)
        parts = packed.split([int(np.prod(size)) for size in sizes])
        return cls(shape, *(part.view(size) for part, size in zip(parts, sizes, strict=True)))


def pack(
    batch: Batch, layout: KvLayout, shapes: Shapes, windows: Sequence[int], nobodys_page: int
) -> tuple[StepShape, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The batch's shape and its numbers, and the pages that it reads, of which some may repeat.

    `windows`: the model's different ones, 0 for none.
    """
    rows, count = shapes.padded_rows(len(batch.tokens)), shapes.query_rows
    units = np.array(list(_units(batch, count)), np.int64).reshape(-1, _FIELDS)
    most = shapes.padded_units(len(units))
    first, length, position, _ = _filled(units, most).T
    highs = position + length - 1
    lows = np.stack([np.maximum(position + 1 - window, 0) * (window > 0) for window in windows])
    starts = lows // shapes.tile * shapes.tile
    tiles = ((highs - starts) // shapes.tile + 1).max(axis=1)
    offsets = np.arange(count)
    within = offsets < length[:, None]
    queries = np.where(within, first[:, None] + offsets, 0)
    own = np.where(within, position[:, None] + offsets, position[:, None])
    places = np.zeros(rows, np.int64)
    real = within & (np.arange(most) < len(units))[:, None]
    places[queries[real]] = np.flatnonzero(real)
    tables = _tables(batch, units, most, layout, nobodys_page)
    page = batch.places.T // layout.page_stride
    shape = StepShape(
        layout.entry_pages,
        rows,
        most,
        count,
        tables.shape[-1],
        shapes.padded_rows(len(batch.sampled)) if len(batch.sampled) else 0,
        tuple(map(_power, tiles.tolist())),
    )
    arrays = (
        _longer(batch.tokens, rows),
        _longer(batch.positions, rows),
        *(_longer(of_place, rows, nobodys_page) for of_place in page),
        _longer(batch.positions % layout.page_tokens, rows),
        places,
        queries,
        own,
        highs,
        lows,
        starts,
        tables,
        _longer(batch.sampled, shape.sampled),
    )
    numbers = np.concatenate([array.ravel() for array in arrays])
    return shape, numbers, tables[tables != nobodys_page]


def _sizes(shape: StepShape) -> tuple[tuple[int, ...], ...]:
    rows, units = (shape.rows,), (shape.units,)
    queries, windows = (shape.units, shape.query_rows), (len(shape.tiles), shape.units)
    tables = (shape.entry, shape.units, shape.table)
    of_rows = rows, rows, (shape.entry, shape.rows), rows, rows
    of_units = queries, queries, units, windows, windows, tables
    return (*of_rows, *of_units, (shape.sampled,))


def _units(batch: Batch, most: int) -> Iterator[tuple[int, int, int, int]]:
    """Blocks cut into units: first row, rows, position, start of the page table."""
    for row, rows, position, table in batch.blocks.tolist():
        for at in range(0, rows, most):
            yield row + at, min(most, rows - at), position + at, table


def _filled(units: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Behind the units, such of one row at position 0."""
    filled = np.tile(np.array([[0, 1, 0, 0]], np.int64), (most, 1))
    filled[: len(units)] = units
    return filled


def _tables(
    batch: Batch, units: npt.NDArray[np.int64], most: int, layout: KvLayout, nobodys_page: int
) -> npt.NDArray[np.int64]:
    """Each unit's page tables, where it reads them; the rest is never looked up."""
    lengths = (units[:, 2] + units[:, 1] - 1) // layout.page_tokens + 1
    shape = layout.entry_pages, most, _power(int(lengths.max()))
    tables = np.full(shape, nobodys_page, np.int64)
    for unit, (start, length) in enumerate(
        zip(units[:, 3].tolist(), lengths.tolist(), strict=True)
    ):
        tables[:, unit, :length] = batch.tables[:, start : start + length]
    entries = np.arange(shape[-1])
    for place, window in enumerate(layout.windows):
        if window:
            first = np.maximum(units[:, 2] + 1 - window, 0) // layout.page_tokens
            tables[place, : len(units)][entries < first[:, None]] = nobodys_page
    return tables


def _longer(values: npt.NDArray[np.int64], length: int, fill: int = 0) -> npt.NDArray[np.int64]:
    longer = np.full(length, fill, np.int64)
    longer[: len(values)] = values
    return longer


def _power(number: int) -> int:
    """The least power of two that is no smaller: few shapes, and what is too much is masked."""
    return 1 << (number - 1).bit_length()
