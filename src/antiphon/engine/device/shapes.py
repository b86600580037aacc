"""The shapes in which a device computes: what makes a row's bits independent of its batch.

torch picks its kernels, and with them the order of additions, by the shapes of what it is given:
two rows are multiplied by another kernel than two hundred. So rows are given to it in the same
shapes whatever the batch is, filled up with rows that nobody reads.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """How a step's rows are cut.

    What is computed row by row is computed for `rows` rows at once; without `exact`, for any
    multiple of that. Attention takes `units` units at once, each of `query_rows` neighbouring rows
    of one sequence (without `exact`: at most so many units), and their keys in tiles of `tile`
    positions, counted from position 0.
    """

    rows: int
    units: int
    query_rows: int
    tile: int
    exact: bool

    @property
    def name(self) -> str:
        """For the numerics id."""
        kind = "x" if self.exact else "m"
        return f"r{self.rows}{kind}u{self.units}q{self.query_rows}t{self.tile}"

    def padded_rows(self, count: int) -> int:
        """The least number of rows, a whole number of blocks, that holds `count`, at least one."""
        return _whole(count, self.rows)

    def padded_units(self, count: int) -> int:
        """The same for units."""
        return _whole(count, self.units) if self.exact else count

    def by_block(self, compute: Callable[..., torch.Tensor], *rows: torch.Tensor) -> torch.Tensor:
        """`compute(*rows)`, which works row by row, in blocks: each of `rows` and the result has
        the same first axis, a whole number of blocks long."""
        if not self.exact or len(rows[0]) == self.rows:
            return compute(*rows)
        blocks = zip(*(one.split(self.rows) for one in rows), strict=True)
        return torch.cat([compute(*block) for block in blocks])


def shapes_of(device: torch.device, dtype: torch.dtype) -> Shapes:
    """Those in which a device computes in `dtype`.

    On the processor a BLAS in fp32 gives a row the same bits in any multiple of 8 rows (see
    `projection`); nothing of the kind is known of narrower types, nor of CUDA, so there each
    product has one shape. 64 rows on CUDA: a product of so few waits for the weights anyway.
    """
    if device.type == "cuda":
        return Shapes(rows=64, units=16, query_rows=16, tile=512, exact=True)
    if dtype is torch.float32:
        return Shapes(rows=8, units=32, query_rows=8, tile=128, exact=False)
    return Shapes(rows=32, units=32, query_rows=8, tile=128, exact=True)


def _whole(count: int, size: int) -> int:
    return max(1, -(-count // size)) * size
