"""Words of 16 bits that some of 32 lanes take from a stream, or give to it, in the order of lanes.

    refill   a state below 2¹⁶ becomes 2¹⁶·x + the next word
    flush    a state of 2²⁰·f or more gives its lower 16 bits, the last lane first

Where the processor moves chosen 16-bit lanes together (AVX-512 VBMI2) sixteen lanes are done at
once, elsewhere one by one: the same words either way.
"""

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 32
SPARE_WORDS = 16
"""Behind what `flush` writes, and what `refill` reads."""
_AT_ONCE = 16
_LOW = 1 << 16
_I1, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (1, 16, 32, 64))
_STATES = ir.VectorType(_I32, _AT_ONCE)
_WORDS = ir.VectorType(_I16, _AT_ONCE)
_CHOSEN = ir.VectorType(_I1, _AT_ONCE)
_MOVES_LANES = bool(llvm.get_host_cpu_features().get("avx512vbmi2"))


@njit(inline="always")
def _refill_each(states, words, at):
    for lane in range(LANES):
        x = states[lane]
        less = x < np.uint32(_LOW)
        filled = np.uint32((x << np.uint32(16)) | np.uint32(words[at]))
        states[lane] = filled if less else x
        at += less
    return at


@njit(inline="always")
def _flush_each(states, frequencies, words, at):
    for lane in range(LANES - 1, -1, -1):
        x = states[lane]
        more = x >> np.uint32(20) >= frequencies[lane]
        words[at] = np.uint16(x & np.uint32(0xFFFF))
        at += more
        states[lane] = x >> np.uint32(16) if more else x
    return at


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, typed as what kernels call: without the typing context."""
    return intrinsic(function)


@_instruction
def _refill_chosen(typingctx, states, words, at):
    def codegen(context, builder, signature, args):
        at = args[2]
        for first in range(0, LANES, _AT_ONCE):
            pointer = _place(context, builder, signature, args, 0, _index(first))
            vector = builder.bitcast(pointer, _STATES.as_pointer())
            x = builder.load(vector, align=4)
            chosen = builder.icmp_unsigned("<", x, ir.Constant(_STATES, [_LOW] * _AT_ONCE))
            there = _place(context, builder, signature, args, 1, at)
            ahead = builder.load(builder.bitcast(there, _WORDS.as_pointer()), align=2)
            word = _moved(builder, "expand", ahead, chosen)
            shifted = builder.shl(x, ir.Constant(_STATES, [16] * _AT_ONCE))
            filled = builder.or_(shifted, builder.zext(word, _STATES))
            builder.store(builder.select(chosen, filled, x), vector, align=4)
            at = builder.add(at, _count(builder, chosen))
        return at

    return types.intp(states, words, types.intp), codegen


@_instruction
def _flush_chosen(typingctx, states, frequencies, words, at):
    def codegen(context, builder, signature, args):
        at = args[3]
        for first in range(LANES - _AT_ONCE, -1, -_AT_ONCE):
            pointer = _place(context, builder, signature, args, 0, _index(first))
            vector = builder.bitcast(pointer, _STATES.as_pointer())
            x = builder.load(vector, align=4)
            f = _place(context, builder, signature, args, 1, _index(first))
            least = builder.load(builder.bitcast(f, _STATES.as_pointer()), align=4)
            parts = builder.lshr(x, ir.Constant(_STATES, [20] * _AT_ONCE))
            chosen = builder.icmp_unsigned(">=", parts, least)
            low, last_first = builder.trunc(x, _WORDS), list(range(_AT_ONCE - 1, -1, -1))
            turned, turned_chosen = (
                _pick(builder, low, last_first),
                _pick(builder, chosen, last_first),
            )
            together = _moved(builder, "compress", turned, turned_chosen)
            there = _place(context, builder, signature, args, 2, at)
            builder.store(together, builder.bitcast(there, _WORDS.as_pointer()), align=2)
            less = builder.lshr(x, ir.Constant(_STATES, [16] * _AT_ONCE))
            builder.store(builder.select(chosen, less, x), vector, align=4)
            at = builder.add(at, _count(builder, chosen))
        return at

    return types.intp(states, frequencies, words, types.intp), codegen


refill = _refill_chosen if _MOVES_LANES else _refill_each
"""`(states uint32 [32], words uint16, at) -> at`: see above. Mutates `states`."""

flush = _flush_chosen if _MOVES_LANES else _flush_each
"""`(states, frequencies uint32 [32], words, at) -> at`. Mutates `states`, `words` from `at` on."""


def _place(context, builder, signature, args, number: int, at):
    """Where element `at` of an array that is argument `number` lies."""
    array = context.make_array(signature.args[number])(context, builder, args[number])
    return builder.gep(array.data, [at])


def _moved(builder, how: str, words, chosen):
    """`expand`: the first words to the chosen lanes; `compress`: words of these to the first."""
    kind = ir.FunctionType(_WORDS, [_WORDS, _WORDS, _CHOSEN])
    name = f"llvm.x86.avx512.mask.{how}.v{_AT_ONCE}i16"
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, [words, ir.Constant(_WORDS, [0] * _AT_ONCE), chosen])


def _count(builder, chosen):
    """How many lanes are chosen."""
    kind = ir.FunctionType(_I16, [_I16])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.ctpop.i16")
    return builder.zext(builder.call(function, [builder.bitcast(chosen, _I16)]), _I64)


def _pick(builder, vector, lanes):
    order = ir.Constant(ir.VectorType(_I32, len(lanes)), lanes)
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), order)


def _index(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)
