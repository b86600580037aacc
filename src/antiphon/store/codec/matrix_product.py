"""start + rows · matrix in float32, with the same bits on every machine.

    out[t, c] ← fma(rows[t, k], matrix[k, c], out[t, c])  for k = 0, 1, …, from start[c] on

Each number is one chain of fused multiply-adds in that order, each of which IEEE 754 defines to the
bit; how many chains run beside each other in registers changes none of them. A BLAS sums in an
order of its own for each processor, and on several threads for some sizes: blocks would be decoded
otherwise on another machine. Goto and van de Geijn 2008 ("Anatomy of High-Performance Matrix
Multiplication") for the shape: the matrix lies in panels of as many columns as registers hold.
"""

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from antiphon.errors import BugError

from .kernel import kernel

PANEL = 64
"""Columns of a panel."""
_LANES = 16
_TALLEST = 6
_VECTORS = PANEL // _LANES if llvm.get_host_cpu_features().get("avx512f") else 1
"""Of a tile: six rows of them are what registers hold."""
_TILE_COLUMNS = _VECTORS * _LANES

_FLOAT, _INDEX = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, _LANES)

Floats = npt.NDArray[np.float32]


class PackedMatrix:
    """A matrix [depth, columns], and what each column begins with (without `start`: 0), laid out
    for `product`. Holds a copy."""

    def __init__(self, matrix: Floats, start: Floats | None = None) -> None:
        self.depth, self.columns = matrix.shape
        self.width = -(-self.columns // PANEL) * PANEL
        """Columns of a product: those behind `columns` are 0."""
        wide = np.zeros((self.depth, self.width), np.float32)
        wide[:, : self.columns] = matrix
        panels = wide.reshape(self.depth, self.width // PANEL, PANEL).transpose(1, 0, 2)
        self._panels = np.ascontiguousarray(panels).reshape(-1)
        self._start = np.zeros(self.width, np.float32)
        if start is not None:
            self._start[: self.columns] = start

    def product(self, rows: Floats) -> Floats:
        """[tokens, width] of `rows` [tokens, depth], C-contiguous. Does not mutate."""
        if rows.shape[1:] != (self.depth,) or not rows.flags.c_contiguous:
            raise BugError(f"rows {rows.shape} for a matrix of {self.depth} rows")
        out = np.empty((len(rows), self.width), np.float32)
        _multiply(rows.reshape(-1), self._panels, self._start, self.depth, out)
        return out


@kernel
def _multiply(rows, panels, start, depth, out):
    tokens, width = out.shape
    flat = out.reshape(-1)
    for first in range(0, width, _TILE_COLUMNS):
        at = first // PANEL * PANEL * depth + first % PANEL
        for token in range(0, tokens, _TALLEST):
            height = min(_TALLEST, tokens - token)
            to = token * width + first
            _tile(height, rows, token * depth, depth, panels, at, start, first, flat, to, width)


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, typed as what kernels call: without the typing context."""
    return intrinsic(function)


@_instruction
def _tile(  # noqa: PLR0913 - one machine-level call with everything in registers
    typingctx, height, rows, row_at, depth, panels, panel_at, start, start_at, out, out_at, width
):
    """`height` (1 … 6) rows and `_TILE_COLUMNS` columns of the product. Flat arrays of float32,
    each counted from its `_at`; rows have `depth` numbers, panels `PANEL`, `out` `width`."""

    def codegen(context, builder, signature, args):
        height, kinds = args[0], signature.args
        after = builder.append_basic_block("tile.after")
        choice = builder.switch(height, after)
        for rows_now in range(1, _TALLEST + 1):
            block = builder.append_basic_block(f"tile.{rows_now}")
            choice.add_case(_index(rows_now), block)
            builder.position_at_end(block)
            _emit_tile(context, builder, kinds, args, rows_now)
            builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    word = types.intp
    kinds = (word, rows, word, word, panels, word, start, word, out, word, word)
    return types.void(*kinds), codegen


def _emit_tile(context, builder, kinds, args, height: int) -> None:
    """Loop over the depth with all sums in registers, then store them."""
    _, rows, row_at, depth, panels, panel_at, start, start_at, out, out_at, width = args

    def pointer(kind: int, array, at):
        return builder.gep(context.make_array(kinds[kind])(context, builder, array).data, [at])

    def below(at, stride, number: int):
        return builder.add(at, builder.mul(stride, _index(number)))

    fma = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{_LANES}f32"
    )
    starts = [_opaque(builder, pointer(1, rows, below(row_at, depth, r))) for r in range(height)]
    panel = pointer(4, panels, panel_at)
    first = [
        _load(builder, pointer(6, start, builder.add(start_at, _index(v * _LANES))))
        for v in range(_VECTORS)
    ]
    before = builder.block
    loop, done = (builder.append_basic_block(f"tile.{name}") for name in ("loop", "done"))
    builder.cbranch(builder.icmp_signed(">", depth, _index(0)), loop, done)
    builder.position_at_end(loop)
    k = builder.phi(_INDEX)
    sums = [builder.phi(_VECTOR) for _ in range(height * _VECTORS)]
    line = builder.mul(k, _index(PANEL))
    values = [
        _load(builder, builder.gep(panel, [builder.add(line, _index(v * _LANES))]))
        for v in range(_VECTORS)
    ]
    grown = []
    for r in range(height):
        factor = _splat(builder, builder.load(builder.gep(starts[r], [k])))
        for v, value in enumerate(values):
            grown.append(builder.call(fma, [factor, value, sums[r * _VECTORS + v]]))
    following = builder.add(k, _index(1))
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, done)
    k.add_incoming(_index(0), before)
    k.add_incoming(following, loop)
    for number, total in enumerate(sums):
        total.add_incoming(first[number % _VECTORS], before)
        total.add_incoming(grown[number], loop)
    builder.position_at_end(done)
    ended = [builder.phi(_VECTOR) for _ in sums]
    for number, total in enumerate(ended):
        row, v = divmod(number, _VECTORS)
        total.add_incoming(first[v], before)
        total.add_incoming(grown[number], loop)
        to = pointer(8, out, builder.add(below(out_at, width, row), _index(v * _LANES)))
        builder.store(total, builder.bitcast(to, _VECTOR.as_pointer()), align=4)


def _index(value: int) -> ir.Constant:
    return ir.Constant(_INDEX, value)


def _load(builder, pointer):
    return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)


def _splat(builder, value):
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    single = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
    return builder.shuffle_vector(single, nothing, everywhere)


def _opaque(builder, pointer):
    """`pointer`, but LLVM does not derive it from another, an instruction for every load."""
    kind = ir.FunctionType(pointer.type, [pointer.type])
    return builder.asm(kind, "", "=r,0", [pointer], side_effect=False)
