"""What the keys about devices and about arithmetic must agree on."""

from dataclasses import replace

from antiphon.errors import ConfigError
from antiphon.types import Config

from .device_name import FORMS, parse_device

TORCH_DTYPES = ("bf16", "fp16")
"""Only torch computes in these, on whichever device."""
ON_CUDA = ("bf16", "fp16", "fp32")
"""On CUDA the first is what a configuration has that names none."""


def check_device(config: Config) -> None:
    """Raises `ConfigError`: no device, or one that does not compute so."""
    name = parse_device(config.engine.device)
    if name is None:
        shown = config.engine.device.encode("unicode_escape").decode()[:60]
        raise ConfigError(f'engine.device = "{shown}": must be {FORMS} (--device)')
    dtype = config.model.dtype
    if name.cuda and dtype not in ON_CUDA:
        raise ConfigError(
            f'model.dtype = "{dtype}": engine.device = "{name.text}" computes in '
            f"{', '.join(ON_CUDA[:-1])} or {ON_CUDA[-1]} (--dtype)"
        )


def with_dtype_of_device(config: Config) -> Config:
    """`config`, whose `model.dtype` nobody has set, with what its device computes in."""
    name = parse_device(config.engine.device)
    if name is None or not name.cuda:
        return config
    return replace(config, model=replace(config.model, dtype=ON_CUDA[0]))


def on_torch_device(config: Config) -> bool:
    """Whether torch computes, on a device that has pages of its own; else this program's kernels
    do, in shared memory."""
    name = parse_device(config.engine.device)
    return (name is not None and name.cuda) or config.model.dtype in TORCH_DTYPES
