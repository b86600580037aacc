"""A model's files: resolve a name, read headers; no torch, no tensors' values."""

from .checkpoint import Checkpoint, CheckpointFormat, open_checkpoint
from .llama_tensors import expected_shapes
from .model_spec import (
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    RopeScaling,
)
from .resolve import KnownModel, here, known_models, resolve
from .tensor_entry import BLOCK_LAYOUT, StorageType, TensorEntry
from .tokenizer_source import GgufTokenizer, TokenizerFiles, TokenizerSource

__all__ = [
    "BLOCK_LAYOUT",
    "Checkpoint",
    "CheckpointFormat",
    "FrequencyFactors",
    "GgufTokenizer",
    "KnownModel",
    "LinearScaling",
    "Llama3Scaling",
    "ModelSpec",
    "RopeScaling",
    "StorageType",
    "TensorEntry",
    "TokenizerFiles",
    "TokenizerSource",
    "expected_shapes",
    "here",
    "known_models",
    "open_checkpoint",
    "resolve",
]
