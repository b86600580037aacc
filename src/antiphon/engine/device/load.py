"""A checkpoint's model on a torch device, and the numerics id of what it computes."""

import re
from math import prod

import torch

from antiphon.checkpoint import Checkpoint
from antiphon.errors import UsageError

from ..kv_memory import KvDtype
from ..mkl_mode import MKL_MODE
from ..numerics import processor
from ..weights import StoredTensors
from .cuda_graphs import StepGraphs
from .device_llama import DeviceLlama, run_at_once
from .open_device import device_title
from .shapes import Shapes

TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""By `model.dtype`."""
DEVICE_REVISION = 1
"""Raised whenever the order of additions changes anywhere in this folder."""


def load_on_device(
    checkpoint: Checkpoint, *, device: torch.device, dtype: str, context_len: int | None = None
) -> DeviceLlama:
    """The model with its matrices in `dtype`, a key of `TORCH_DTYPES`, tensor by tensor.

    On CUDA, steps of one token a sequence are captured as graphs. Raises `UsageError` for another
    dtype or if the device has too little memory, `ModelFileError` as `load_weights`.
    """
    if dtype not in TORCH_DTYPES:
        raise UsageError(f'model.dtype = "{dtype}": a device computes in {", ".join(TORCH_DTYPES)}')
    try:
        return DeviceLlama(
            checkpoint.spec,
            StoredTensors(checkpoint),
            device=device,
            dtype=TORCH_DTYPES[dtype],
            context_len=context_len,
            runner=StepGraphs(device) if device.type == "cuda" else run_at_once,
        )
    except torch.OutOfMemoryError as error:
        raise UsageError(
            f"engine.device = {device} (--device): the weights of {checkpoint.name} do not fit "
            "there: take a smaller model or dtype, or a device that is free"
        ) from error


def device_weight_bytes(checkpoint: Checkpoint, dtype: str) -> int:
    """Memory that the weights take there, about; reads no tensor."""
    size = TORCH_DTYPES[dtype].itemsize
    entries = checkpoint.tensors.values()
    return sum(prod(one.shape) * (size if len(one.shape) == 2 else 4) for one in entries)


def device_numerics_id(
    device: torch.device, dtype: str, kv_dtype: KvDtype, shapes: Shapes, *, long_rope: bool = False
) -> str:
    """Like `numerics_id`, for what torch computes: device, torch and its CUDA, dtypes, shapes."""
    if device.type == "cuda":
        place = re.sub(r"[^a-z0-9]+", "", device_title(device).lower())
        where = ("cuda", place, f"cuda{torch.version.cuda}")
    else:
        where = ("torchcpu", *processor(), MKL_MODE)
    parts = (
        *where,
        dtype,
        f"kv{kv_dtype.value}",
        f"torch{torch.__version__.split('+')[0]}",
        shapes.name,
        "longrope" if long_rope else "",
        f"d{DEVICE_REVISION}",
    )
    return "-".join(filter(None, parts))
