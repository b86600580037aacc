"""Tokens from tensors: torch lives here."""

from . import mkl_mode, spin_limit  # noqa: F401  (before torch)
from .agreement import Agreement, compare
from .device import (
    DeviceKv,
    DeviceLlama,
    check_room,
    device_numerics_id,
    device_title,
    device_weight_bytes,
    load_on_device,
    open_device,
)
from .first_use import first_use
from .kv_memory import (
    KvArea,
    KvDtype,
    KvLayout,
    KvMemory,
    PagedKv,
    check_available,
    kv_dtype_of,
    layout_of,
)
from .llama import LlamaModel
from .model import Model, load_llama
from .numerics import numerics_id
from .quantized_llama import QuantizedLlama
from .rope import frequencies as rotary_frequencies
from .rope import runs_long
from .thread_team import use_cores
from .torch_engine import TorchEngine
from .weights import StoredTensors, load_quantized, load_weights, weight_bytes

__all__ = [
    "Agreement",
    "DeviceKv",
    "DeviceLlama",
    "KvArea",
    "KvDtype",
    "KvLayout",
    "KvMemory",
    "LlamaModel",
    "Model",
    "PagedKv",
    "QuantizedLlama",
    "StoredTensors",
    "TorchEngine",
    "check_available",
    "check_room",
    "compare",
    "device_numerics_id",
    "device_title",
    "device_weight_bytes",
    "first_use",
    "kv_dtype_of",
    "layout_of",
    "load_llama",
    "load_on_device",
    "load_quantized",
    "load_weights",
    "numerics_id",
    "open_device",
    "rotary_frequencies",
    "runs_long",
    "use_cores",
    "weight_bytes",
]
