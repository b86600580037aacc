"""The ways in which models stretch rotary position embedding beyond what they were trained with."""

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
class YarnScaling:
    """YaRN (Peng et al. 2023): interpolation by parts, and sharper attention.

    Pairs that turn more than `beta_fast` times within `original_context_len` stay, those that turn
    less than `beta_slow` times are stretched by `factor`, between them a ramp; `truncate` rounds
    the ramp's ends to whole pairs. Rotated queries and keys are multiplied by `attention_factor`.
    """

    factor: float
    original_context_len: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRopeScaling:
    """LongRoPE (Ding et al. 2024): frequency i is divided by `short[i]`, or by `long[i]`.

    `long` holds where a model is to run beyond `original_context_len`, for all its positions:
    see docs/decisions/0019-families.md. Both have rotary_dim / 2 factors. Rotated queries and
    keys are multiplied by `attention_factor`.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    original_context_len: int
    attention_factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequencyFactors:
    """RoPE frequency i is divided by `factors[i]` (rotary_dim / 2 of them).

    GGUF files hold Llama 3.1's scaling in this form, worked out by the converter.
    """

    factors: tuple[float, ...]


RopeScaling: TypeAlias = (
    LinearScaling | Llama3Scaling | YarnScaling | LongRopeScaling | FrequencyFactors
)


def find_scaling_flaw(scaling: RopeScaling | None, rotary_dim: int) -> str | None:
    """What makes `scaling` impossible for heads of which `rotary_dim` elements turn, or None."""
    if scaling is None:
        return None
    for name in (field.name for field in fields(scaling)):
        value = getattr(scaling, name)
        if isinstance(value, bool):
            continue
        if isinstance(value, tuple) and len(value) != rotary_dim // 2:
            return f"{len(value)} RoPE frequency factors for {rotary_dim} elements that turn"
        numbers = value if isinstance(value, tuple) else (value,)
        wrong = next((n for n in numbers if not (isfinite(n) and n > 0)), None)
        if wrong is not None:
            shown = "RoPE frequency factor" if isinstance(value, tuple) else name
            return f"RoPE scaling: {shown} is {wrong}, but must be a positive, finite number"
    match scaling:
        case Llama3Scaling(low_freq_factor=low, high_freq_factor=high) if low >= high:
            return "RoPE scaling: low_freq_factor must be below high_freq_factor"
        case YarnScaling(beta_slow=slow, beta_fast=fast) if slow >= fast:
            return "RoPE scaling: beta_slow must be below beta_fast"
    return None
