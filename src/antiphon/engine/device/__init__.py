"""The engine on torch devices: pages in the device's memory, and a forward pass in torch."""

from .device_kv import Current, DeviceKv, PlainMover
from .device_llama import DeviceLlama
from .load import TORCH_DTYPES, device_numerics_id, device_weight_bytes, load_on_device
from .open_device import check_room, cuda_found, device_title, open_device
from .shapes import Shapes, shapes_of

__all__ = [
    "TORCH_DTYPES",
    "Current",
    "DeviceKv",
    "DeviceLlama",
    "PlainMover",
    "Shapes",
    "check_room",
    "cuda_found",
    "device_numerics_id",
    "device_title",
    "device_weight_bytes",
    "load_on_device",
    "open_device",
    "shapes_of",
]
