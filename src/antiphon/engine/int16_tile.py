"""The register-blocked parts of attention in whole numbers, written as LLVM vector IR.

Both products of attention are C ← A·B with the columns of C side by side in registers, as in
`attention_tile`, but A and B are int16. Two neighbours of a row of A (a pair, one 32-bit word) meet
two rows of B whose columns are interleaved, so that one `vpmaddwd` multiplies both and adds the
products into an int32: twice the multiply-adds of a float instruction. The sums are exact, so their
order and the shape of the tile can't change a bit; only the epilogue is in floats, lane by lane.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .attention_tile import TALLEST, WIDTHS, transposed_words
from .cpu_level import CpuLevel, cpu_levels
from .lanes import LANES, element_pointer, lanes_type

_F32 = ir.FloatType()
_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_F32, LANES)
_WORD_VECTOR = ir.VectorType(_I32, LANES)
_ROW = ir.VectorType(_I16, LANES)
_UNROLL = 2
_GROUP = 8
"""Rows whose peaks are found at a time: what AVX2's registers hold."""

_MULTIPLY_ADD = {
    CpuLevel.AVX512: (16, "llvm.x86.avx512.pmaddw.d.512"),
    CpuLevel.AVX2: (8, "llvm.x86.avx2.pmadd.wd"),
    CpuLevel.GENERIC: (8, None),
}
_NATIVE, _NAME = _MULTIPLY_ADD[cpu_levels()[0]]
_PARTS = LANES // _NATIVE
_SUMS = ir.VectorType(_I32, _NATIVE)
_FLOATS = ir.VectorType(_F32, _NATIVE)
_PAIRS = ir.VectorType(_I16, 2 * _NATIVE)


def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, typed as what kernels call: without the typing context."""
    return intrinsic(function)


@_typed
def transpose_pairs(  # noqa: PLR0913 - as a tile
    typingctx, rows, row_at, first, column, target, target_at, target_stride
):
    """8 pairs of 16 rows: target[target_at + p·target_stride + r] ← words p of row first + r.

    `rows` bfloat16 (as uint16) of which row r starts at `row_at[first + r] + column`; `target`
    float32, for its bits.
    """

    def codegen(context, builder, signature, args):
        kinds = signature.args
        _, row_at, first, column, target, target_at, stride = args
        starts = []
        for row in range(LANES):
            entry = element_pointer(
                context, builder, kinds[1], row_at, builder.add(first, _int(row))
            )
            at = builder.add(builder.load(entry), column)
            starts.append(element_pointer(context, builder, kinds[0], args[0], at))
        for number, words in enumerate(transposed_words(builder, starts, 0)):
            into = builder.add(target_at, builder.mul(stride, _int(number)))
            pointer = element_pointer(context, builder, kinds[4], target, into)
            builder.store(words, builder.bitcast(pointer, _WORD_VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(rows, row_at, types.intp, types.intp, target, types.intp, types.intp), codegen


@_typed
def row_peaks(typingctx, rows, row_at, first, column, width):
    """Largest magnitude of each of 16 rows: `Lanes`, lane r for row first + r.

    `rows` bfloat16 (as uint16) of which row r starts at `row_at[first + r] + column`, `width` (a
    positive multiple of 16) elements long. Infinity and NaN exceed all numbers.
    """

    def codegen(context, builder, signature, args):
        rows, row_at, first, column, width = args
        peaks = []
        for group in range(0, LANES, _GROUP):
            starts = []
            for row in range(group, group + _GROUP):
                entry = element_pointer(
                    context, builder, signature.args[1], row_at, builder.add(first, _int(row))
                )
                at = builder.add(builder.load(entry), column)
                starts.append(element_pointer(context, builder, signature.args[0], rows, at))
            peaks.append(_folded(builder, _columns_folded(builder, starts, width)))
        pairs = _pick(builder, peaks[0], peaks[1], range(LANES))
        low = builder.shl(pairs, ir.Constant(_WORD_VECTOR, [16] * LANES))
        high = builder.and_(pairs, ir.Constant(_WORD_VECTOR, [0xFFFF0000] * LANES))
        return builder.bitcast(_larger(builder, low, high), _VECTOR)

    return lanes_type(rows, row_at, types.intp, types.intp, types.intp), codegen


def _columns_folded(builder, starts, width):
    """For each row, 16 halves: the largest magnitudes of every 16th column."""
    before = builder.block
    loop, done = (builder.append_basic_block(f"peaks.{name}") for name in ("loop", "done"))
    builder.branch(loop)
    builder.position_at_end(loop)
    offset, peaks = builder.phi(_I64), [builder.phi(_ROW) for _ in starts]
    grown = []
    for start, peak in zip(starts, peaks, strict=True):
        part = builder.bitcast(builder.gep(start, [offset]), _ROW.as_pointer())
        plain = builder.and_(builder.load(part, align=2), ir.Constant(_ROW, [0x7FFF] * LANES))
        grown.append(_larger(builder, plain, peak))
    following = builder.add(offset, _int(LANES))
    builder.cbranch(builder.icmp_signed("<", following, width), loop, done)
    offset.add_incoming(_int(0), before)
    offset.add_incoming(following, loop)
    for peak, value in zip(peaks, grown, strict=True):
        peak.add_incoming(ir.Constant(_ROW, [0] * LANES), before)
        peak.add_incoming(value, loop)
    builder.position_at_end(done)
    return grown


def _folded(builder, rows):
    """Of 8 rows of 16 halves, the largest even and the largest odd one of each: 8 words."""
    half = ir.VectorType(_I32, _GROUP)

    def joined(a, b, evens, odds):
        a, b = builder.bitcast(a, half), builder.bitcast(b, half)
        first, second = (
            builder.bitcast(_pick(builder, a, b, lanes), _ROW) for lanes in (evens, odds)
        )
        return _larger(builder, first, second)

    for _ in range(2):  # within 128 bits, as the processors shuffle cheaply
        rows = [
            joined(a, b, (0, 2, 8, 10, 4, 6, 12, 14), (1, 3, 9, 11, 5, 7, 13, 15))
            for a, b in zip(rows[::2], rows[1::2], strict=True)
        ]
    both = joined(rows[0], rows[1], (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
    return builder.bitcast(both, half)


def _larger(builder, a, b):
    return builder.select(builder.icmp_signed(">", a, b), a, b)


def _tile(epilogue: str) -> Callable[..., None]:
    def typed(  # noqa: PLR0913 - one machine-level call with everything in registers
        typingctx, height, width, a, a_at, a_stride, b, b_at, b_stride, pairs,
        c, c_at, c_stride, scales, scale_at, fades, fade_at,
    ):  # fmt: skip
        def codegen(context, builder, signature, args):
            _emit_tiles(context, builder, signature.args, args, epilogue)
            return context.get_dummy_value()

        word = types.intp
        return types.void(
            word, word, a, word, word, b, word, word, word, c, word, word, scales, word, fades, word
        ), codegen

    return _typed(typed)


score_tile = _tile("lanes")
"""C ← float(A·B) · scales[scale_at + column], without a look at `fades`: see `value_tile`."""

value_tile = _tile("rows")
"""C ← C·fade + float(A·B)·scale for a register tile of `height` rows and `width`·16 columns.

`(height, width, a, a_at, a_stride, b, b_at, b_stride, pairs, c, c_at, c_stride, scales, scale_at,
fades, fade_at) -> None`: for r < height, j < 16·width: c[c_at + r·c_stride + j] ← it ·
fades[fade_at + r] + scales[scale_at + r] · Σ over p < pairs of the products of the pair
a[a_at + r·a_stride + p] and the pair b[b_at + p·b_stride + j]. All are arrays of 32-bit elements;
`pairs` is even, `height` is 1 … `TALLEST`, `width` 1 or `WIDTHS[height - 1]`; for any others
nothing is computed.
"""


def _emit_tiles(context, builder, kinds, args, epilogue: str) -> None:
    """A switch over all shapes."""
    height, width = args[:2]
    after = builder.append_basic_block("tile.after")
    shape = builder.add(builder.mul(height, _int(LANES)), width)
    choice = builder.switch(shape, after)
    for rows in range(1, TALLEST + 1):
        for vectors in sorted({1, WIDTHS[rows - 1]}):
            block = builder.append_basic_block(f"tile.{rows}.{vectors}")
            choice.add_case(_int(rows * LANES + vectors), block)
            builder.position_at_end(block)
            _Tile(context, builder, kinds, args, rows, vectors).emit(epilogue)
            builder.branch(after)
    builder.position_at_end(after)


class _Tile:
    """Emits the code of one shape."""

    def __init__(self, context, builder, kinds, args, rows: int, vectors: int) -> None:
        self.context, self.builder, self.kinds = context, builder, kinds
        self.rows, self.parts = rows, vectors * _PARTS
        _, _, self.a, self.a_at, self.a_stride, self.b, self.b_at, self.b_stride = args[:8]
        self.pairs, self.c, self.c_at, self.c_stride = args[8:12]
        self.scales, self.scale_at, self.fades, self.fade_at = args[12:]

    def emit(self, epilogue: str) -> None:
        """Loop over the pairs, then the epilogue; leaves the builder after both."""
        builder = self.builder
        starts = [
            self._opaque(
                builder.bitcast(
                    self._pointer(2, self.a, self._at(self.a_at, self.a_stride, row)),
                    _I32.as_pointer(),
                )
            )
            for row in range(self.rows)
        ]
        before = builder.block
        loop, done = (builder.append_basic_block(f"tile.{name}") for name in ("loop", "done"))
        builder.branch(loop)
        builder.position_at_end(loop)
        number, row_b = builder.phi(_I64), builder.phi(_I64)
        phis = [builder.phi(_SUMS) for _ in range(self.rows * self.parts)]
        sums, below = list(phis), row_b
        for step in range(_UNROLL):
            sums = self._multiply_pair(builder.add(number, _int(step)), below, starts, sums)
            below = builder.add(below, self.b_stride)
        following = builder.add(number, _int(_UNROLL))
        builder.cbranch(builder.icmp_signed("<", following, self.pairs), loop, done)
        number.add_incoming(_int(0), before)
        number.add_incoming(following, loop)
        row_b.add_incoming(self.b_at, before)
        row_b.add_incoming(below, loop)
        for phi, value in zip(phis, sums, strict=True):
            phi.add_incoming(ir.Constant(_SUMS, [0] * _NATIVE), before)
            phi.add_incoming(value, loop)
        builder.position_at_end(done)
        if epilogue == "lanes":
            self._scale_lanes(sums)
        else:
            self._scale_rows(sums)

    def _multiply_pair(self, number, row_b, starts, sums):
        """`sums` + pair `number` of A times the pairs at `row_b` of B."""
        builder = self.builder
        values = [
            self._load(self._pointer(5, self.b, builder.add(row_b, _int(part * _NATIVE))), _PAIRS)
            for part in range(self.parts)
        ]
        grown = []
        for r, start in enumerate(starts):
            factor = builder.bitcast(
                _splat(builder, builder.load(builder.gep(start, [number])), _SUMS), _PAIRS
            )
            for v, value in enumerate(values):
                product = _multiply_add(builder, value, factor)
                grown.append(builder.add(sums[r * self.parts + v], product))
        return grown

    def _scale_lanes(self, sums) -> None:
        builder = self.builder
        scales = [
            self._load(
                self._pointer(12, self.scales, builder.add(self.scale_at, _int(part * _NATIVE))),
                _FLOATS,
            )
            for part in range(self.parts)
        ]
        for at, total in enumerate(sums):
            value = builder.fmul(builder.sitofp(total, _FLOATS), scales[at % self.parts])
            self._store(value, self._c_pointer(at))

    def _scale_rows(self, sums) -> None:
        builder = self.builder
        kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
        fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{_NATIVE}f32")
        for row in range(self.rows):
            scale, fade = (
                _splat(
                    builder,
                    builder.load(self._pointer(kind, array, builder.add(at, _int(row)))),
                    _FLOATS,
                )
                for kind, array, at in (
                    (12, self.scales, self.scale_at),
                    (14, self.fades, self.fade_at),
                )
            )
            for part in range(self.parts):
                at = row * self.parts + part
                pointer = self._c_pointer(at)
                former = builder.fmul(self._load(pointer, _FLOATS), fade)
                total = builder.sitofp(sums[at], _FLOATS)
                self._store(builder.call(fma, [total, scale, former]), pointer)

    def _c_pointer(self, number: int):
        """Where sum `number` of the tile lies in C."""
        row, part = divmod(number, self.parts)
        at = self.builder.add(self._at(self.c_at, self.c_stride, row), _int(part * _NATIVE))
        return self._pointer(9, self.c, at)

    def _at(self, start, stride, row: int):
        return self.builder.add(start, self.builder.mul(stride, _int(row)))

    def _pointer(self, kind: int, array, at):
        return element_pointer(self.context, self.builder, self.kinds[kind], array, at)

    def _load(self, pointer, kind):
        return self.builder.load(self.builder.bitcast(pointer, kind.as_pointer()), align=4)

    def _store(self, value, pointer) -> None:
        self.builder.store(value, self.builder.bitcast(pointer, value.type.as_pointer()), align=4)

    def _opaque(self, pointer):
        """`pointer`, but LLVM does not derive it from another, an instruction for every load."""
        kind = ir.FunctionType(pointer.type, [pointer.type])
        return self.builder.asm(kind, "", "=r,0", [pointer], side_effect=False)


def _multiply_add(builder, a, b):
    """int32 lane i ← a[2i]·b[2i] + a[2i+1]·b[2i+1], of int16."""
    if _NAME is not None:
        kind = ir.FunctionType(_SUMS, [a.type, b.type])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, _NAME), [a, b])
    wide = ir.VectorType(_I32, 2 * _NATIVE)
    product = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
    even, odd = (
        builder.shuffle_vector(
            product,
            ir.Constant(wide, ir.Undefined),
            ir.Constant(_SUMS, list(range(first, 2 * _NATIVE, 2))),
        )
        for first in (0, 1)
    )
    return builder.add(even, odd)


def _int(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)


def _pick(builder, first, second, indexes):
    """Lanes of the concatenation of two vectors, by index."""
    kind = ir.VectorType(_I32, len(indexes))
    return builder.shuffle_vector(first, second, ir.Constant(kind, list(indexes)))


def _splat(builder, value, kind):
    nothing = ir.Constant(kind, ir.Undefined)
    single = builder.insert_element(nothing, value, ir.Constant(_I32, 0))
    everywhere = ir.Constant(ir.VectorType(_I32, kind.count), [0] * kind.count)
    return builder.shuffle_vector(single, nothing, everywhere)
