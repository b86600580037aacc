"""CUDA only: pages between the device and pinned shared memory, on streams of their own.

Pinned memory is read and written by the device itself, at the bus's speed and without a copy in
between. Streams of their own let pages be sealed by another thread while the engine's computes.
"""

import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_log = logging.getLogger(__name__)
_REGISTERED, _ALREADY = 0, 712
"""cudaSuccess; cudaErrorHostMemoryAlreadyRegistered."""


class PinnedMover:
    """Implements `PageMover`. Pins `host` until the process ends, if the driver lets it."""

    def __init__(self, device: torch.Tensor, host: torch.Tensor) -> None:
        self._device = device
        self._host = host
        self._out = torch.cuda.Stream(device.device)
        self._in = torch.cuda.Stream(device.device)
        runtime: Any = torch.cuda.cudart()
        code = int(runtime.cudaHostRegister(host.data_ptr(), host.nbytes, 0))
        if code not in (_REGISTERED, _ALREADY):
            _log.warning("KV memory can't be pinned (CUDA error %d): copies are slower", code)

    def to_host(self, pages: npt.NDArray[np.int64]) -> None:
        """See `PageMover`. From any thread."""
        self._out.wait_stream(torch.cuda.default_stream(self._device.device))
        with torch.cuda.stream(self._out):
            for page in pages.tolist():
                self._host[page].copy_(self._device[page], non_blocking=True)
        self._out.synchronize()

    def to_device(
        self, pages: npt.NDArray[np.int64], start: int = 0, end: int | None = None
    ) -> None:
        """See `PageMover`."""
        self._in.wait_stream(torch.cuda.default_stream(self._device.device))
        with torch.cuda.stream(self._in):
            for page in pages.tolist():
                self._device[page, start:end].copy_(self._host[page, start:end], non_blocking=True)
        self._in.synchronize()
