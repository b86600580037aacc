"""Matrix products whose rows do not depend on how many rows, or threads, there are."""

import torch
import torch.nn.functional as F

from antiphon.errors import BugError

ROW_MULTIPLE = 8
"""Matrix products take a multiple of this many rows.

A BLAS picks other kernels, with other orders of addition, for a few rows and for the rows that are
left over at the end of a block. With whole multiples of 8 rows, and on Intel's processors in MKL's
strict mode (`mkl_mode`), every row's sums are added in one order: its bits are the same in any
batch and with any number of threads. `tests/engine/test_projection.py` holds the law for the
machine that it runs on.
"""


def padded_rows(rows: int) -> int:
    """The smallest multiple of `ROW_MULTIPLE` that holds `rows` rows (at least one multiple)."""
    return max(-(-rows // ROW_MULTIPLE), 1) * ROW_MULTIPLE


def project(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """rows · weightᵀ + bias: [n, inputs], [outputs, inputs], [outputs] → [n, outputs].

    Raises `BugError` unless n is a multiple of `ROW_MULTIPLE`.
    """
    if len(rows) == 0 or len(rows) % ROW_MULTIPLE:
        raise BugError(f"a matrix product of {len(rows)} rows would not be reproducible")
    product = F.linear(rows, weight)
    return product if bias is None else product.add_(bias)
