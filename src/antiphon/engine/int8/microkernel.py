"""The register-blocked heart of the int8 matrix product, written as LLVM vector IR.

One call multiplies `height` rows by one panel of 16 output channels over all inputs:

                      16 channels
                    ┌─────────────┐      k runs over pairs of inputs. A panel holds, for each pair,
          pair k →  │ w00 w01 …   │      32 int8: (channel 0: inputs 2k, 2k+1), (channel 1: …), …
                    └─────────────┘      They are widened to int16 as they are loaded
                                         (or before, where many tiles share the panel).
    ┌──────────┐    ┌─────────────┐      A row gives its pair (2 int16 = 32 bits) to all lanes.
    │ x[r,2k:] │ ×  │ acc[r, 0…15]│      vpmaddwd multiplies 16 bit by 16 bit and adds the two
    └──────────┘    └─────────────┘      products of a pair into the channel's int32.

The accumulators of a tile stay in registers for the whole loop, as in Goto & van de Geijn, "Anatomy
of High-Performance Matrix Multiplication" (2008), §6; lanes are channels, so nothing is reduced
across a register at the end. Sums of int32 are exact (`quantize.activation_limit`), so their order,
the tile's height and the instruction set cannot change a result. The epilogue is two float
multiplications in a fixed order with no addition behind them: there is nothing to contract.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..cpu_level import CpuLevel

PANEL_CHANNELS = 16
PAIR_BYTES = 2 * PANEL_CHANNELS
"""Bytes of a panel per pair of inputs."""
INPUT_MULTIPLE = 8
"""Rows and panels are padded with zeros to a multiple of this many inputs: no tail in the loop."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_F32 = ir.FloatType()
_LINE_BYTES = 64
_MOST_POINTERS = 8
"""Of the 15 integer registers of x86, for the rows of a tile."""


@dataclass(frozen=True)
class _Shape:
    """How a level fills its registers."""

    lanes: int  # int32 lanes of a vector
    tallest: int  # rows of the tallest tile
    chains: int  # independent sums wanted, to hide the latency of an addition
    multiply_add: str | None  # LLVM's name of vpmaddwd at this width

    @property
    def vectors(self) -> int:
        return PANEL_CHANNELS // self.lanes

    def split(self, height: int) -> int:
        """Partial sums per accumulator, so that a short tile has `chains` of them: 1, 2 or 4."""
        return next((s for s in (1, 2) if s * height * self.vectors >= self.chains), 4)


_SHAPES = {
    CpuLevel.AVX512: _Shape(16, 16, 8, "llvm.x86.avx512.pmaddw.d.512"),
    CpuLevel.AVX2: _Shape(8, 6, 6, "llvm.x86.avx2.pmadd.wd"),
    CpuLevel.GENERIC: _Shape(8, 4, 4, None),
}

TALLEST = {level: shape.tallest for level, shape in _SHAPES.items()}


def tile(level: CpuLevel, *, widened: bool = False) -> Callable[..., None]:
    """Build the intrinsic of a level; kernels call it with integers (addresses, bytes, counts).

    `(height, x, x_stride, w, pairs, ahead, row_scale, channel_scale, out, out_stride) -> None`:
    out[r, c] ← float32(Σ x[r, i]·w[c, i]) · (row_scale[r]·channel_scale[c]) for r < height, c < 16.
    `x`: int16 rows; `w`: one panel, 64-byte aligned, or, `widened`, its int16 copy, 32-byte
    aligned; `pairs`: a multiple of `INPUT_MULTIPLE` / 2; `ahead`: address from which to prefetch as
    many bytes as a panel has (it need not exist). Heights are 1 … `TALLEST[level]`, widened the two
    largest of them; another height computes nothing.
    """
    shape = _SHAPES[level]
    heights = range(shape.tallest - 1 if widened else 1, shape.tallest + 1)

    def codegen(context, builder, signature, args):
        height, *operands = args
        after = builder.append_basic_block("tile.after")
        choice = builder.switch(height, after)
        for rows in heights:
            block = builder.append_basic_block(f"tile.{rows}")
            choice.add_case(ir.Constant(_I64, rows), block)
            builder.position_at_end(block)
            _Tile(builder, shape, rows, widened, *operands).emit()
            builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    def typed(  # noqa: PLR0913 - one machine-level call with everything in registers
        typingctx, height, x, x_stride, w, pairs, ahead, row_scale, channel_scale, out, out_stride
    ):
        return types.void(*[types.int64] * 10), codegen

    made: Any = intrinsic(typed)
    return made


class _Tile:
    """Emits the code of one height. All operands are int64 values in the IR."""

    def __init__(self, builder, shape: _Shape, rows: int, widened: bool, *operands: Any) -> None:
        self.builder = builder
        self.shape = shape
        self.rows = rows
        self.widened = widened
        self.split = shape.split(rows)
        self.unroll = max(2, self.split)
        self.sums = ir.VectorType(_I32, shape.lanes)
        self.x, self.x_stride, self.w, self.pairs, self.ahead, *self.ends = operands

    def emit(self) -> None:
        """The loop over pairs, then the epilogue; leaves the builder after both."""
        builder = self.builder
        before = builder.block
        row_starts = [
            builder.add(self.x, builder.mul(self.x_stride, _int(row))) for row in range(self.rows)
        ]
        if self.rows <= _MOST_POINTERS:
            # Else LLVM derives each row's address from the one before, in every iteration: an
            # instruction more for each broadcast. For many rows that beats running out of pointers.
            row_starts = [self._opaque(start) for start in row_starts]
        loop = builder.append_basic_block(f"tile.{self.rows}.loop")
        done = builder.append_basic_block(f"tile.{self.rows}.done")
        builder.branch(loop)

        builder.position_at_end(loop)
        pair = builder.phi(_I64)
        phis = [builder.phi(self.sums) for _ in range(self.split * self.rows * self.shape.vectors)]
        sums = list(phis)
        for step in range(self.unroll):
            self._multiply_pair(builder.add(pair, _int(step)), step, row_starts, sums)
        following = builder.add(pair, _int(self.unroll))
        builder.cbranch(builder.icmp_signed("<", following, self.pairs), loop, done)
        pair.add_incoming(_int(0), before)
        pair.add_incoming(following, loop)
        for phi, value in zip(phis, sums, strict=True):
            phi.add_incoming(ir.Constant(self.sums, [0] * self.shape.lanes), before)
            phi.add_incoming(value, loop)

        builder.position_at_end(done)
        self._scale_and_store(sums)

    def _multiply_pair(self, pair, step: int, row_starts, sums) -> None:
        """One pair of inputs of all rows times all channels, added into `sums` (changed)."""
        builder, shape = self.builder, self.shape
        if step % (_LINE_BYTES // PAIR_BYTES) == 0:
            self._prefetch(builder.add(self.ahead, builder.mul(pair, _int(PAIR_BYTES))))
        weights = [self._weights(pair, vector) for vector in range(shape.vectors)]
        for row, start in enumerate(row_starts):
            both = self._load(builder.add(start, builder.mul(pair, _int(4))), _I32, 0, align=4)
            spread = builder.bitcast(
                self._splat(both, self.sums), ir.VectorType(_I16, 2 * shape.lanes)
            )
            for v, weight in enumerate(weights):
                at = ((step % self.split) * self.rows + row) * shape.vectors + v
                sums[at] = builder.add(sums[at], self._multiply_add(weight, spread))

    def _weights(self, pair, vector: int):
        """Pair `pair` of 16 channels, or of the `vector`-th half of them, as int16."""
        builder, count = self.builder, 2 * self.shape.lanes
        wide = ir.VectorType(_I16, count)
        if self.widened:
            at = builder.add(self.w, builder.mul(pair, _int(2 * PAIR_BYTES)))
            return self._load(at, wide, vector * 2 * count, align=32)
        at = builder.add(self.w, builder.mul(pair, _int(PAIR_BYTES)))
        narrow = self._load(at, ir.VectorType(_I8, count), vector * count, align=count)
        return builder.sext(narrow, wide)

    def _multiply_add(self, a, b):
        """int32 lane i ← a[2i]·b[2i] + a[2i+1]·b[2i+1], of int16."""
        builder, lanes, name = self.builder, self.shape.lanes, self.shape.multiply_add
        if name is not None:
            kind = ir.FunctionType(self.sums, [a.type, b.type])
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [a, b])
        wide = ir.VectorType(_I32, 2 * lanes)
        product = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
        even, odd = (
            builder.shuffle_vector(
                product,
                ir.Constant(wide, ir.Undefined),
                ir.Constant(ir.VectorType(_I32, lanes), list(range(first, 2 * lanes, 2))),
            )
            for first in (0, 1)
        )
        return builder.add(even, odd)

    def _scale_and_store(self, sums) -> None:
        builder, shape = self.builder, self.shape
        row_scale, channel_scale, out, out_stride = self.ends
        floats = ir.VectorType(_F32, shape.lanes)
        width = 4 * shape.lanes
        channel_scales = [
            self._load(channel_scale, floats, v * width, align=4) for v in range(shape.vectors)
        ]
        per_split = self.rows * shape.vectors
        for row in range(self.rows):
            scale = self._splat(self._load(row_scale, _F32, 4 * row, align=4), floats)
            row_out = builder.add(out, builder.mul(out_stride, _int(row)))
            for v in range(shape.vectors):
                total = sums[row * shape.vectors + v]
                for part in range(1, self.split):
                    total = builder.add(total, sums[part * per_split + row * shape.vectors + v])
                value = builder.fmul(
                    builder.sitofp(total, floats), builder.fmul(scale, channel_scales[v])
                )
                builder.store(value, self._pointer(row_out, floats, v * width), align=4)

    def _opaque(self, value):
        """`value`, but LLVM does not know what it was computed from (an empty assembler line)."""
        kind = ir.FunctionType(value.type, [value.type])
        return self.builder.asm(kind, "", "=r,0", [value], side_effect=False)

    def _prefetch(self, address) -> None:
        byte = _I8.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        prefetch = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(_I32, value) for value in (0, 3, 1))
        self.builder.call(prefetch, [self.builder.inttoptr(address, byte), read, keep, data])

    def _pointer(self, address, kind, offset: int):
        return self.builder.inttoptr(self.builder.add(address, _int(offset)), kind.as_pointer())

    def _load(self, address, kind, offset: int, align: int):
        return self.builder.load(self._pointer(address, kind, offset), align=align)

    def _splat(self, value, kind):
        nothing = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(nothing, value, ir.Constant(_I32, 0))
        everywhere = ir.Constant(ir.VectorType(_I32, kind.count), [0] * kind.count)
        return self.builder.shuffle_vector(first, nothing, everywhere)


def _int(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)
