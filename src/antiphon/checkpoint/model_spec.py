"""What a model is: the hyper-parameters that its forward pass needs, checked against each other."""

from dataclasses import dataclass, fields
from math import isfinite
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScaling:
    """RoPE position interpolation (Chen et al. 2023): positions are divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Llama 3.1's RoPE scaling: long wavelengths are stretched by `factor`, short ones are not."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequencyFactors:
    """RoPE frequency i is divided by `factors[i]` (head_dim / 2 of them).

    GGUF files hold Llama 3.1's scaling in this form, worked out by the converter.
    """

    factors: tuple[float, ...]


RopeScaling: TypeAlias = LinearScaling | Llama3Scaling | FrequencyFactors


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Hyper-parameters of a Llama-family model, in the terms of its Hugging Face config.

    `attention_bias`: q, k, v and o projections have biases; `mlp_bias`: so have gate, up and down.
    `tied_embeddings`: the output projection is the embedding matrix.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab_size: int
    context_len: int
    rope_theta: float
    rope_scaling: RopeScaling | None
    rms_norm_eps: float
    tied_embeddings: bool
    attention_bias: bool = False
    mlp_bias: bool = False
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None


_COUNTS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab_size")
_LARGEST_COUNT = 2**31


def find_flaw(spec: ModelSpec) -> str | None:
    """Say what makes `spec` impossible, or None when it can be built. Does not mutate."""
    for name in (*_COUNTS, "context_len"):
        value = getattr(spec, name)
        if not 0 < value < _LARGEST_COUNT:
            return f"{name} is {value}, but must be at least 1 and below {_LARGEST_COUNT}"
    for name in ("rope_theta", "rms_norm_eps"):
        value = getattr(spec, name)
        if not (isfinite(value) and value > 0):
            return f"{name} is {value}, but must be a positive, finite number"
    if spec.heads % spec.kv_heads:
        return f"{spec.heads} attention heads can't share {spec.kv_heads} key-value heads evenly"
    if spec.head_dim % 2:
        return f"head_dim is {spec.head_dim}, but rotary embedding needs an even number"
    for token in (*spec.eos_token_ids, *([] if spec.bos_token_id is None else [spec.bos_token_id])):
        if not 0 <= token < spec.vocab_size:
            return f"special token id {token} is outside the vocabulary of {spec.vocab_size}"
    return _scaling_flaw(spec)


def _scaling_flaw(spec: ModelSpec) -> str | None:
    scaling = spec.rope_scaling
    match scaling:
        case None:
            return None
        case FrequencyFactors(factors=factors):
            if len(factors) != spec.head_dim // 2:
                return f"{len(factors)} RoPE frequency factors for head_dim {spec.head_dim}"
            numbers = {"RoPE frequency factor": min(factors, key=_badness)}
        case LinearScaling() | Llama3Scaling():
            numbers = {f.name: getattr(scaling, f.name) for f in fields(scaling)}
    for name, value in numbers.items():
        if not (isfinite(value) and value > 0):
            return f"RoPE scaling: {name} is {value}, but must be a positive, finite number"
    if isinstance(scaling, Llama3Scaling) and scaling.low_freq_factor >= scaling.high_freq_factor:
        return "RoPE scaling: low_freq_factor must be below high_freq_factor"
    return None


def _badness(value: float) -> float:
    return value if isfinite(value) else float("-inf")
