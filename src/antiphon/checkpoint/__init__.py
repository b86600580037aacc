"""A model's files: resolve a name, read headers; no torch, no tensors' values."""

from .checkpoint import Checkpoint, CheckpointFormat, open_checkpoint
from .experts import Experts, Scoring
from .families import FAMILIES, Family
from .hf_config import family_of, hf_config, hf_tensors
from .model_spec import Activation, ModelSpec
from .model_tensors import expected_shapes
from .resolve import KnownModel, here, known_models, resolve
from .rope_scaling import (
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RopeScaling,
    YarnScaling,
)
from .tensor_entry import BLOCK_LAYOUT, StorageType, TensorEntry
from .tokenizer_source import GgufTokenizer, TokenizerFiles, TokenizerSource

__all__ = [
    "BLOCK_LAYOUT",
    "FAMILIES",
    "Activation",
    "Checkpoint",
    "CheckpointFormat",
    "Experts",
    "Family",
    "FrequencyFactors",
    "GgufTokenizer",
    "KnownModel",
    "LinearScaling",
    "Llama3Scaling",
    "LongRopeScaling",
    "ModelSpec",
    "RopeScaling",
    "Scoring",
    "StorageType",
    "TensorEntry",
    "TokenizerFiles",
    "TokenizerSource",
    "YarnScaling",
    "expected_shapes",
    "family_of",
    "here",
    "hf_config",
    "hf_tensors",
    "known_models",
    "open_checkpoint",
    "resolve",
]
