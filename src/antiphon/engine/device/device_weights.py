"""A checkpoint's tensors on a device, in the dtype that it multiplies in."""

import torch

from ..linear import Tensors

_ROUTER = ".mlp.gate.weight"
"""A router that is rounded chooses other experts."""


class DeviceTensors:
    """Implements `Tensors`: matrices in `dtype`; norms, biases and routers stay float32.

    Each is converted on its way, so that the device holds what it needs and no more.
    """

    def __init__(self, stored: Tensors, device: torch.device, dtype: torch.dtype) -> None:
        self._stored = stored
        self._device = device
        self._dtype = dtype

    def pop(self, key: str, /) -> torch.Tensor:
        """The tensor, on the device. Raises what the store of tensors does."""
        tensor = self._stored.pop(key)
        narrow = tensor.ndim == 2 and not key.endswith(_ROUTER)
        return tensor.to(self._device, self._dtype if narrow else torch.float32)
