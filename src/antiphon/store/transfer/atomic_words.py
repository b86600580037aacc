"""Ordered access to 64-bit words that another process reads or writes, for kernels.

x86-64 orders loads with loads and stores with stores by itself, and there these compile to plain
moves (`fence` but for streaming stores); aarch64 does not. Compilers may reorder on either.
Addresses are int64, aligned to 8; words are uint64.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD = ir.IntType(64)


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, typed as what kernels call: without the typing context."""
    return intrinsic(function)


@_instruction
def load_acquire(typingctx: Any, address: Any) -> Any:
    """The word; no later read or write of this thread happens before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _WORD.as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.uint64(types.int64), codegen


@_instruction
def store_release(typingctx: Any, address: Any, word: Any) -> Any:
    """Write the word; no earlier read or write of this thread happens after."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _WORD.as_pointer())
        builder.store_atomic(args[1], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), codegen


@_instruction
def fence(typingctx: Any) -> Any:
    """All reads and writes before it, streaming stores too, happen before all that follow."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@_instruction
def load_word(typingctx: Any, address: Any) -> Any:
    """The word, in no particular order: for memory of this thread's own."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _WORD.as_pointer()), align=8)

    return types.uint64(types.int64), codegen


@_instruction
def load_int(typingctx: Any, address: Any) -> Any:
    """The C int there, in no particular order."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(32).as_pointer()), align=4)

    return types.int32(types.int64), codegen
