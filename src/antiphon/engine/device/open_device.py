"""From a device's name to torch's device, or one sentence that says why not."""

import logging
from contextlib import suppress

import torch

from antiphon.core.device_name import (
    CudaFound,
    DeviceName,
    device_of_worker,
    device_problem,
    parse_device,
    room_problem,
)
from antiphon.errors import BugError, UsageError

_SPARE_BYTES = 512 * 2**20
"""Of a CUDA device, for what a step needs besides weights and KV."""
_log = logging.getLogger(__name__)


def open_device(text: str, number: int = 0) -> torch.device:
    """The device of worker `number` of this host, ready to compute exactly.

    `text` is a configuration's `engine.device`. Raises `UsageError`: it is not there.
    """
    name = parse_device(text)
    if name is None:
        raise BugError(f"a configuration names device {text!r}")
    if not name.cuda:
        return torch.device("cpu")
    found = cuda_found()
    problem = device_problem(name, found)
    if problem is not None:
        raise UsageError(problem)
    device = torch.device(device_of_worker(name, number, len(found.devices)).text)
    _exact(device)
    return device


def check_room(device: torch.device, *, weights: int, kv: int) -> None:
    """Raises `UsageError`: a CUDA device has not the bytes free that weights and KV memory need."""
    if device.type != "cuda":
        return
    free, _ = torch.cuda.mem_get_info(device)
    name = DeviceName("cuda", device.index)
    problem = room_problem(name, weights=weights, kv=kv, free=max(0, free - _SPARE_BYTES))
    if problem is not None:
        raise UsageError(problem)


def device_title(device: torch.device) -> str:
    """What the device is called, for people and for the numerics id."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "torch on the processor"


def cuda_found() -> CudaFound:
    """What torch has here of CUDA, and why it has no more."""
    program = f"torch {torch.__version__}"
    if not torch.backends.cuda.is_built():
        return CudaFound(program=program, build=None)
    names, why = (), ""
    try:
        torch.cuda.init()
        names = tuple(map(torch.cuda.get_device_name, range(torch.cuda.device_count())))
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
    return CudaFound(
        program=program, build=torch.version.cuda or "another", devices=names, why_none=why
    )


def _exact(device: torch.device) -> None:
    """Products in what they are asked in: no TF32, no sums in half precision."""
    torch.cuda.set_device(device)
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = False
    with suppress(AttributeError):
        matmul.allow_bf16_reduced_precision_reduction = False
        matmul.allow_fp16_reduced_precision_reduction = False
    _log.debug("device %s: %s", device, device_title(device))
