"""The register-blocked parts of attention, written as LLVM vector IR.

Both products of attention are C ← C·fade + A·B with 16 or more columns of B side by side in
registers: scores are queries times transposed keys (lanes are keys), outputs are weights times
values (lanes are columns of a head). An element of C is one chain of fused multiply-adds in the
order of the rows of B. So the bits of an element depend neither on the shape of the register tile
nor on what is computed beside it, and every instruction set gives the same ones.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .cpu_level import CpuLevel, cpu_levels
from .lanes import LANES, element_pointer

_WORDS = 8
"""32-bit words of a key that are transposed at a time."""

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_WORD_VECTOR = ir.VectorType(_I32, LANES)

TALLEST = 6
"""Most rows of a register tile."""
_WIDTHS = {
    CpuLevel.AVX512: (4, 4, 4, 4, 4, 4),
    CpuLevel.AVX2: (4, 3, 2, 1, 1, 1),
    CpuLevel.GENERIC: (4, 3, 2, 1, 1, 1),
}
WIDTHS = _WIDTHS[cpu_levels()[0]]
"""Columns, in vectors of `LANES`, of a register tile of 1, 2, … rows: what the registers hold."""


def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, typed as what kernels call: without the typing context."""
    return intrinsic(function)


@_typed
def prefetch(typingctx, array, at):
    """Ask for the cache line of element `at`; it need not exist."""

    def codegen(context, builder, signature, args):
        pointer = element_pointer(context, builder, signature.args[0], *args)
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(_I32, value) for value in (0, 3, 1))
        builder.call(function, [builder.bitcast(pointer, byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@_typed
def transpose(typingctx, rows, row_at, first, column, target, target_at, target_stride):
    """16 columns of 16 rows: target[target_at + c·target_stride + r] ← rows[row_at[first+r] + c].

    `rows`, `target` float32, `row_at` int64; c counts from `column` in `rows`, from 0 in `target`.
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
        for group in range(0, LANES, _WORDS):
            for number, words in enumerate(transposed_words(builder, starts, group)):
                into = builder.add(target_at, builder.mul(stride, _int(group + number)))
                pointer = element_pointer(context, builder, kinds[4], target, into)
                floats = builder.bitcast(words, _VECTOR)
                builder.store(floats, builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(rows, row_at, types.intp, types.intp, target, types.intp, types.intp), codegen


def transposed_words(builder, starts, first_word: int):
    """Eight vectors; lane r of vector w is word `first_word` + w of row r."""
    half = ir.VectorType(_I32, _WORDS)

    def words(start):
        pointer = builder.gep(builder.bitcast(start, _I32.as_pointer()), [_int(first_word)])
        return builder.load(builder.bitcast(pointer, half.as_pointer()), align=2)

    # 128-bit parts of vector i: rows i (two parts) and i + 4; of vector i + 4: rows i + 8, i + 12.
    vectors = [
        _pick(builder, words(starts[row]), words(starts[row + 4]), range(16))
        for row in (0, 1, 2, 3, 8, 9, 10, 11)
    ]
    parts = range(0, LANES, 4)
    low = [lane for part in parts for lane in (part, part + 16, part + 1, part + 17)]
    high = [lane + 2 for lane in low]
    vectors = [
        _pick(builder, vectors[i], vectors[i + 1], lanes)
        for i in (0, 2, 4, 6)
        for lanes in (low, high)
    ]
    low = [lane for part in parts for lane in (part, part + 1, part + 16, part + 17)]
    high = [lane + 2 for lane in low]
    vectors = [
        _pick(builder, vectors[i], vectors[i + 2], lanes)
        for i in (0, 1, 4, 5)
        for lanes in (low, high)
    ]
    even = [part + lane for part in (0, 8, 16, 24) for lane in range(4)]
    odd = [lane + 4 for lane in even]
    return [
        _pick(builder, vectors[word], vectors[word + 4], lanes)
        for lanes in (even, odd)
        for word in range(4)
    ]


def _tile(fading: bool) -> Callable[..., None]:
    def typed(
        typingctx, height, width, a, a_at, a_stride, b, row_at, first, column, count,
        c, c_at, c_stride, fades, fade_at,
    ):  # fmt: skip
        def codegen(context, builder, signature, args):
            _emit_tiles(context, builder, signature.args, args, fading)
            return context.get_dummy_value()

        word = types.intp
        return types.void(
            word, word, a, word, word, b, row_at, word, word, word, c, word, word, fades, word
        ), codegen

    return _typed(typed)


score_tile = _tile(fading=False)
"""C ← A·B, without a look at `fades`. Arguments: see `value_tile`."""

value_tile = _tile(fading=True)
"""C ← C·fade + A·B for a register tile of `height` rows and `width` vectors of columns.

`(height, width, a, a_at, a_stride, b, row_at, first, column, count, c, c_at, c_stride, fades,
fade_at) -> None`: for r < height, j < 16·width: c[c_at + r·c_stride + j] ← it · fades[fade_at + r]
+ Σ over k < count of a[a_at + r·a_stride + k] · b[row_at[first + k] + column + j]. `row_at`
int64, the others float32. `height` is 1 … `TALLEST`, `width` 1 or
`WIDTHS[height - 1]`; for any others nothing is computed.
"""


def _emit_tiles(context, builder, kinds, args, fading: bool) -> None:
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
            _Tile(context, builder, kinds, args, rows, vectors).emit(fading)
            builder.branch(after)
    builder.position_at_end(after)


class _Tile:
    """Emits the code of one shape."""

    def __init__(self, context, builder, kinds, args, rows: int, vectors: int) -> None:
        self.context, self.builder = context, builder
        self.rows, self.vectors = rows, vectors
        (_, _, self.a, self.a_at, self.a_stride, self.b, self.row_at, self.first, self.column) = (
            args[:9]
        )
        self.count, self.c, self.c_at, self.c_stride, self.fades, self.fade_at = args[9:]
        self.a_kind, self.b_kind, self.at_kind = kinds[2], kinds[5], kinds[6]
        self.c_kind, self.fade_kind = kinds[10], kinds[13]

    def emit(self, fading: bool) -> None:
        """Load, loop over the rows of B, store; leaves the builder after it."""
        builder = self.builder
        starts = self._row_starts()
        sums = self._faded() if fading else [_zeros()] * (self.rows * self.vectors)
        before = builder.block
        loop = builder.append_basic_block("tile.loop")
        done = builder.append_basic_block("tile.done")
        builder.branch(loop)
        builder.position_at_end(loop)
        number = builder.phi(_I64)
        phis = [builder.phi(_VECTOR) for _ in sums]
        grown = self._multiply_row(number, starts, phis)
        following = builder.add(number, _int(1))
        builder.cbranch(builder.icmp_signed("<", following, self.count), loop, done)
        number.add_incoming(_int(0), before)
        number.add_incoming(following, loop)
        for phi, begin, value in zip(phis, sums, grown, strict=True):
            phi.add_incoming(begin, before)
            phi.add_incoming(value, loop)
        builder.position_at_end(done)
        for at, value in enumerate(grown):
            builder.store(value, self._c_pointer(at), align=4)

    def _row_starts(self):
        """Addresses of A's rows."""
        builder, starts = self.builder, []
        for row in range(self.rows):
            at = builder.add(self.a_at, builder.mul(self.a_stride, _int(row)))
            starts.append(element_pointer(self.context, builder, self.a_kind, self.a, at))
        return starts

    def _multiply_row(self, number, starts, sums):
        """`sums` + column `number` of A times row `number` of B."""
        builder, context = self.builder, self.context
        entry = element_pointer(
            context, builder, self.at_kind, self.row_at, builder.add(self.first, number)
        )
        row = builder.add(builder.load(entry), self.column)
        values = []
        for vector in range(self.vectors):
            at = builder.add(row, _int(vector * LANES))
            pointer = element_pointer(context, builder, self.b_kind, self.b, at)
            values.append(builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4))
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
        grown = []
        for r, start in enumerate(starts):
            factor = _splat(builder, builder.load(builder.gep(start, [number])))
            for v, value in enumerate(values):
                grown.append(builder.call(fma, [factor, value, sums[r * self.vectors + v]]))
        return grown

    def _faded(self):
        builder, faded = self.builder, []
        for row in range(self.rows):
            at = builder.add(self.fade_at, _int(row))
            pointer = element_pointer(self.context, builder, self.fade_kind, self.fades, at)
            fade = _splat(builder, builder.load(pointer))
            for vector in range(self.vectors):
                former = builder.load(self._c_pointer(row * self.vectors + vector), align=4)
                faded.append(builder.fmul(former, fade))
        return faded

    def _c_pointer(self, number: int):
        """Where sum `number` of the tile lies in C."""
        builder = self.builder
        row, vector = divmod(number, self.vectors)
        at = builder.add(self.c_at, builder.mul(self.c_stride, _int(row)))
        at = builder.add(at, _int(vector * LANES))
        pointer = element_pointer(self.context, builder, self.c_kind, self.c, at)
        return builder.bitcast(pointer, _VECTOR.as_pointer())


def _zeros() -> ir.Constant:
    return ir.Constant(_VECTOR, [0.0] * LANES)


def _int(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)


def _pick(builder, first, second, indexes):
    """Lanes of the concatenation of two vectors, by index."""
    kind = ir.VectorType(_I32, len(indexes))
    return builder.shuffle_vector(first, second, ir.Constant(kind, list(indexes)))


def _splat(builder, value):
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, _int32(0))
    return _pick(builder, single, single, [0] * LANES)


def _int32(value: int) -> ir.Constant:
    return ir.Constant(_I32, value)
