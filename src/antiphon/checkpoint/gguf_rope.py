"""RoPE's scaling in GGUF files: metadata keys, and tensors of factors."""

from antiphon.errors import ModelFileError

from .facts import Facts
from .gguf_file import GgufFile
from .hf_rope import longrope_attention_factor, yarn_attention_factor
from .rope_scaling import (
    FrequencyFactors,
    LinearScaling,
    LongRopeScaling,
    RopeScaling,
    YarnScaling,
)
from .tensor_entry import StorageType

_FACTORS = "rope_freqs.weight"
_SHORT, _LONG = "rope_factors_short.weight", "rope_factors_long.weight"
ROPE_TENSORS = (_FACTORS, _SHORT, _LONG)
_LARGEST_BYTES = 64 * 1024
_KINDS = ("none", "linear", "yarn", "longrope")


def rope_scaling_of(file: GgufFile, facts: Facts) -> RopeScaling | None:
    """The scaling that the file holds. `facts`: its metadata under the architecture's prefix.

    Raises `ModelFileError` for a type of scaling that isn't supported.
    """
    kind = facts.string("rope.scaling.type", "none")
    if kind not in _KINDS:
        supported = ", ".join(_KINDS)
        problem = f"RoPE scaling {kind!r} is not supported; supported: {supported}"
        raise ModelFileError(file.path, problem)
    if _LONG in file.tensors or _SHORT in file.tensors:
        return _longrope(file, facts)
    if kind == "longrope":
        raise ModelFileError(file.path, "is missing", tensor=_LONG)
    if _FACTORS in file.tensors:
        if kind != "none":
            problem = f"{kind} RoPE scaling and {_FACTORS} exclude each other"
            raise ModelFileError(file.path, problem)
        return FrequencyFactors(factors=_factors(file, _FACTORS))
    if kind == "linear":
        return LinearScaling(factor=facts.number("rope.scaling.factor"))
    return _yarn(facts) if kind == "yarn" else None


def _yarn(facts: Facts) -> YarnScaling:
    """llama.cpp multiplies the paper's attention factor by the file's `attn_factor`."""
    factor = facts.number("rope.scaling.factor")
    original = facts.integer(
        "rope.scaling.original_context_length", facts.integer("context_length")
    )
    further = facts.number("rope.scaling.attn_factor", 1.0)
    return YarnScaling(
        factor=factor,
        original_context_len=original,
        attention_factor=further * yarn_attention_factor(factor),
        beta_fast=facts.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=facts.number("rope.scaling.yarn_beta_slow", 1.0),
    )


def _longrope(file: GgufFile, facts: Facts) -> LongRopeScaling:
    """The attention factor is in the file; without it, as config.json's default."""
    key, context = "rope.scaling.original_context_length", facts.integer("context_length")
    original = facts.integer(key, context)
    if original < 2:
        raise facts.wrong(key, "at least 2")
    usual = longrope_attention_factor(context / original, original)
    return LongRopeScaling(
        short=_factors(file, _SHORT),
        long=_factors(file, _LONG),
        original_context_len=original,
        attention_factor=facts.number("rope.scaling.attn_factor", usual),
    )


def _factors(file: GgufFile, name: str) -> tuple[float, ...]:
    tensor = file.tensors.get(name)
    if tensor is None:
        raise ModelFileError(file.path, "is missing", tensor=name)
    if tensor.storage is not StorageType.F32:
        raise ModelFileError(file.path, "is not stored as F32", tensor=name)
    if len(tensor.raw) > _LARGEST_BYTES:
        raise ModelFileError(file.path, "has too many elements", tensor=name)
    return tuple(tensor.raw.view("<f4").tolist())
