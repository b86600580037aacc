"""A projection in float32; and tensors, widened to whole vectors for it."""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F

from .lanes import LANES
from .projection import project


@dataclass(frozen=True, slots=True)
class Linear:
    """A projection: weight [outputs, inputs] and, in some models, a bias [outputs]."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """See `projection.project`."""
        return project(rows, self.weight, self.bias)


class Tensors(Protocol):
    """Float32 tensors by the engine's name, to be taken once: a dict, or a file read lazily."""

    def pop(self, key: str, /) -> torch.Tensor:
        """Hand over a tensor."""
        ...


def whole_vectors(width: int) -> int:
    """`width`, rounded up to a multiple of `LANES`."""
    return -(-width // LANES) * LANES


def widen(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Zeros behind each axis up to `shape`; the tensor itself if nothing is missing."""
    missing = [wanted - size for wanted, size in zip(shape, tensor.shape, strict=True)]
    if not any(missing):
        return tensor
    return F.pad(tensor, [amount for size in reversed(missing) for amount in (0, size)])


def widened_matrix(
    tensor: torch.Tensor, outputs: tuple[int, ...], inputs: tuple[int, ...]
) -> torch.Tensor:
    """A weight [∏ outputs, ∏ inputs], or a bias without inputs, each side's last axis widened."""
    wide_outputs = (*outputs[:-1], whole_vectors(outputs[-1]))
    wide_inputs = (*inputs[:-1], whole_vectors(inputs[-1])) if inputs else ()
    wide = widen(tensor.view(outputs + inputs), wide_outputs + wide_inputs)
    return wide.reshape(-1, *([torch.Size(wide_inputs).numel()] if inputs else []))
