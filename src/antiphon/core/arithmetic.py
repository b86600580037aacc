"""In what a model computes: what its weights are rounded to, or else which floats, and where.

given                   cpu                 cuda, cuda:N
nothing                 int8                none, bf16
dtype                   none, dtype         none, dtype
quantize = "none"       none, fp32          none, bf16
quantize = "int8"       int8                refused
both                    as given; int8 and a dtype are refused
"""

from collections.abc import Mapping
from dataclasses import replace

from antiphon.errors import BugError, ConfigError
from antiphon.types import Config

from .device_name import FORMS, DeviceName, parse_device

QUANTIZATIONS = ("int8", "none")
"""What `model.quantize` may be: 8-bit weights with 12-bit activations, or floats."""
TORCH_DTYPES = ("bf16", "fp16")
"""Only torch computes in these, on whichever device."""
_REFERENCE, _ON_CUDA = "fp32", "bf16"
"""What a model that is not rounded computes in if nobody says."""


def dtype_of(quantize: str, dtype: str | None = None) -> str:
    """The engine's arithmetic of `model.quantize` and `model.dtype`, as in numerics ids: "int8", or
    else `dtype`, by default "fp32"."""
    match quantize:
        case "int8":
            return "int8"
        case "none":
            return dtype or _REFERENCE
        case other:
            raise BugError(f"no quantisation: {other}")


def with_arithmetic(config: Config, given: Mapping[object, object]) -> Config:
    """`config` with what its model computes in; `given`: which keys of `[model]` somebody has set.

    Raises `ConfigError`: no device, or one that does not compute so.
    """
    device = _device(config)
    rounded, dtype = given.get("quantize"), config.model.dtype
    if rounded == "int8" and dtype is not None:
        raise ConfigError(
            f'model.quantize = "int8" (--quantize), model.dtype = "{dtype}" (--dtype): weights of '
            'int8 are computed with in whole numbers: leave one of the two out, or set "none" for '
            "model.quantize"
        )
    if rounded == "int8" and device.cuda:
        raise ConfigError(
            f'model.quantize = "int8" (--quantize): engine.device = "{device.text}" (--device) '
            "computes in bf16, fp16 or fp32 (model.dtype, --dtype): leave model.quantize out, or "
            'set it to "none"'
        )
    floats = rounded == "none" or dtype is not None or device.cuda
    if floats:
        dtype = dtype or (_ON_CUDA if device.cuda else _REFERENCE)
    quantize = "none" if floats else "int8"
    return replace(config, model=replace(config.model, quantize=quantize, dtype=dtype))


def on_torch_device(config: Config) -> bool:
    """Whether torch computes, on a device that has pages of its own; else this program's kernels
    do, in shared memory."""
    name = parse_device(config.engine.device)
    return (name is not None and name.cuda) or config.model.dtype in TORCH_DTYPES


def kernel_dtype(config: Config) -> str:
    """`dtype_of` for what only this program's kernels do: "int8" or "fp32".

    Raises `ConfigError`: the configuration is about a torch device.
    """
    if on_torch_device(config):
        raise ConfigError(
            f'model.dtype = "{config.model.dtype}", engine.device = "{config.engine.device}": here '
            "a model computes on the processor, in int8 or fp32: leave them out (--quantize says "
            "which)"
        )
    return dtype_of(config.model.quantize, config.model.dtype)


def _device(config: Config) -> DeviceName:
    name = parse_device(config.engine.device)
    if name is None:
        shown = config.engine.device.encode("unicode_escape").decode()[:60]
        raise ConfigError(f'engine.device = "{shown}": must be {FORMS} (--device)')
    return name
