"""Compiled kernels that are kept on disk, and the revision that names them."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from numba import njit

from antiphon.host import shared

_BESIDE_INT8 = (
    "attention.py",
    "attention_block.py",
    "attention_fp32.py",
    "attention_int16.py",
    "attention_tile.py",
    "cpu_level.py",
    "expert_choice.py",
    "int16_lanes.py",
    "int16_tile.py",
    "kernel_cache.py",
    "lanes.py",
    "row_kernels.py",
)
_PACKING = ("microkernel.py", "packed_block.py", "quantize.py")


def _revision() -> str:
    """Digest of the sources: it changes whenever any kernel may compute otherwise.

    Of all files that hold kernels or what they call; file times do not count, so two machines with
    the same sources agree.
    """
    folder = Path(__file__).parent
    return _digest([*sorted((folder / "int8").glob("*.py")), *(folder / n for n in _BESIDE_INT8)])


def _digest(sources: Iterable[Path]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for source in sources:
        text = source.read_bytes()
        digest.update(f"{source.name}:{len(text)}:".encode() + text)
    return digest.hexdigest()


KERNEL_REVISION = _revision()
PACKING_REVISION = _digest(Path(__file__).parent / "int8" / name for name in _PACKING)
"""Names the packed form: weights that another revision packed are packed anew."""


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """`numba.njit` for a kernel: releases the interpreter lock, IEEE arithmetic, cached on disk.

    Numba's cache looks at the time stamp of the file that holds the function, but not at the files
    that the function's callees and intrinsics come from: after a change there it would load the old
    machine code. Hence the revision of all sources is made part of the name that numba files it by.
    The CPU's name and features are part of numba's key already. Processes take turns at the cache.
    """
    function.__qualname__ = f"{function.__qualname__}_{KERNEL_REVISION}"
    return shared(njit(nogil=True, cache=True, error_model="numpy")(function))
