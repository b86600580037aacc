"""Rotary position embedding: frequencies, their scalings, and the tables of cosines and sines."""

import math
from dataclasses import replace
from typing import assert_never

import numpy as np
import numpy.typing as npt
import torch

from antiphon.checkpoint import (
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ModelSpec,
    YarnScaling,
)

Table = npt.NDArray[np.float32]
Rotations = tuple[Table, Table, Table, Table]
"""Cosines and sines of layers that see everything, and of layers that have a window."""


def frequencies(spec: ModelSpec, context_len: int | None = None) -> torch.Tensor:
    """Radians per position of each pair of elements that turns: float32 [turning / 2].

    `context_len`: how far the model is to run (default: its own context). Only LongRoPE asks.
    """
    steps = torch.arange(0, spec.turning, 2, dtype=torch.int64, device="cpu").float() / spec.turning
    plain = 1.0 / spec.rope_theta**steps
    match spec.rope_scaling:
        case None:
            return plain
        case LinearScaling(factor=factor):
            return plain / factor
        case Llama3Scaling() as scaling:
            return _llama3(plain, scaling)
        case YarnScaling() as scaling:
            return _yarn(plain, scaling, spec)
        case LongRopeScaling() as scaling:
            factors = scaling.long if runs_long(spec, context_len) else scaling.short
            return plain / torch.tensor(factors, dtype=torch.float32, device="cpu")
        case FrequencyFactors(factors=factors):
            return plain / torch.tensor(factors, dtype=torch.float32, device="cpu")
        case other:
            assert_never(other)


def runs_long(spec: ModelSpec, context_len: int | None = None) -> bool:
    """Whether a model with LongRoPE turns by its long factors, all its positions alike.

    It does if it is to run beyond the context that it was first trained with.
    """
    scaling = spec.rope_scaling
    return (
        isinstance(scaling, LongRopeScaling)
        and (context_len or spec.context_len) > scaling.original_context_len
    )


def _llama3(plain: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    """Llama 3.1: long wavelengths stretch by `factor`, short ones stay, between them a ramp."""
    wavelength = 2 * math.pi / plain
    turns = scaling.original_context_len / wavelength
    ramp = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blended = (1 - ramp) * plain / scaling.factor + ramp * plain
    stretched = torch.where(turns < scaling.low_freq_factor, plain / scaling.factor, blended)
    return torch.where(turns > scaling.high_freq_factor, plain, stretched)


def _yarn(plain: torch.Tensor, scaling: YarnScaling, spec: ModelSpec) -> torch.Tensor:
    """NTK-by-parts (Peng et al. 2023, §3.2): the ramp runs over the numbers of the pairs."""

    def pair_that_turns(times: float) -> float:
        """The number of the pair that turns so often within the original context."""
        span = math.log(scaling.original_context_len / (times * 2 * math.pi))
        return spec.turning * span / (2 * math.log(spec.rope_theta))

    low, high = pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, spec.turning - 1)
    steepness = max(high - low, 0.001)
    ramp = ((torch.arange(len(plain), dtype=torch.float32, device="cpu") - low) / steepness).clamp(
        0, 1
    )
    return plain / scaling.factor * ramp + plain * (1 - ramp)


def rotation_table(spec: ModelSpec, context_len: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of position · frequency: two float32 [context_len, turning / 2].

    Angles are rounded to float32 as `transformers` does; cosine and sine are taken in float64,
    multiplied by the scaling's attention factor and rounded once, so that a position's values do
    not depend on the length of the table (but see `runs_long`).
    """
    positions = torch.arange(context_len, dtype=torch.float32, device="cpu")
    angles = torch.outer(positions, frequencies(spec, context_len)).numpy().astype(np.float64)
    factor = getattr(spec.rope_scaling, "attention_factor", 1.0)
    cosines, sines = np.cos(angles) * factor, np.sin(angles) * factor
    return torch.from_numpy(cosines.astype(np.float32)), torch.from_numpy(sines.astype(np.float32))


def rotations(spec: ModelSpec, context_len: int) -> Rotations:
    """The tables of both kinds of layers; one and the same where they don't differ."""
    cosines, sines = rotation_table(spec, context_len)
    whole = cosines.numpy(), sines.numpy()
    if spec.window_rope_theta is None:
        return *whole, *whole
    local = replace(spec, rope_theta=spec.window_rope_theta, rope_scaling=None)
    cosines, sines = rotation_table(local, context_len)
    return *whole, cosines.numpy(), sines.numpy()
