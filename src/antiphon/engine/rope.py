"""Rotary position embedding: frequencies, their scalings, and the table of cosines and sines."""

import math
from typing import assert_never

import numpy as np
import torch

from antiphon.checkpoint import FrequencyFactors, LinearScaling, Llama3Scaling, ModelSpec


def frequencies(spec: ModelSpec) -> torch.Tensor:
    """Radians per position of each pair of elements: float32 [head_dim / 2]."""
    steps = torch.arange(0, spec.head_dim, 2, dtype=torch.int64).float() / spec.head_dim
    plain = 1.0 / spec.rope_theta**steps
    match spec.rope_scaling:
        case None:
            return plain
        case LinearScaling(factor=factor):
            return plain / factor
        case Llama3Scaling() as scaling:
            return _llama3(plain, scaling)
        case FrequencyFactors(factors=factors):
            return plain / torch.tensor(factors, dtype=torch.float32)
        case other:
            assert_never(other)


def _llama3(plain: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    """Llama 3.1: long wavelengths stretch by `factor`, short ones stay, between them a ramp."""
    wavelength = 2 * math.pi / plain
    turns = scaling.original_context_len / wavelength
    ramp = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blended = (1 - ramp) * plain / scaling.factor + ramp * plain
    stretched = torch.where(turns < scaling.low_freq_factor, plain / scaling.factor, blended)
    return torch.where(turns > scaling.high_freq_factor, plain, stretched)


def rotation_table(spec: ModelSpec, context_len: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of position · frequency: two float32 [context_len, head_dim / 2].

    Angles are rounded to float32 as `transformers` does; cosine and sine are taken in float64 and
    rounded once, so that a position's values do not depend on the length of the table.
    """
    positions = torch.arange(context_len, dtype=torch.float32)
    angles = torch.outer(positions, frequencies(spec)).numpy().astype(np.float64)
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    return torch.from_numpy(cosines), torch.from_numpy(sines)
