"""Tokens from tensors: torch lives here."""

from . import spin_limit  # noqa: F401  (before torch)
from .kv_memory import KvLayout, KvMemory, layout_of
from .llama import LlamaModel
from .numerics import numerics_id
from .thread_team import use_cores
from .torch_engine import TorchEngine
from .weights import load_weights

__all__ = [
    "KvLayout",
    "KvMemory",
    "LlamaModel",
    "TorchEngine",
    "layout_of",
    "load_weights",
    "numerics_id",
    "use_cores",
]
