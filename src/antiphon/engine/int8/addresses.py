"""Memory and functions by address, for kernels: a table of int64 stands for a model's weights."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, typed as what kernels call: without the typing context."""
    return intrinsic(function)


def _pointer(element: types.Type, address: Any) -> Any:
    pointer = types.CPointer(element)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(pointer))

    return pointer(address), codegen


@_instruction
def floats_at(typingctx: Any, address: Any) -> Any:
    """An int64 as a pointer to float32, for `carray`."""
    return _pointer(types.float32, address)


@_instruction
def bytes_at(typingctx: Any, address: Any) -> Any:
    """An int64 as a pointer to int8, for `carray`."""
    return _pointer(types.int8, address)


@_instruction
def call(typingctx: Any, address: Any) -> Any:
    """Call the C function `void f(void)` at an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), []).as_pointer()
        builder.call(builder.inttoptr(args[0], function), [])
        return context.get_dummy_value()

    return types.void(address), codegen
