"""What the engine asks of a model, and the models there are: one for each dtype."""

from pathlib import Path
from typing import Protocol, TypeVar

import torch

from antiphon.checkpoint import Checkpoint, ModelSpec
from antiphon.errors import UsageError
from antiphon.types import ComingKv

from .batch import Batch
from .expert_counts import ExpertCounts
from .kv_memory import KvMemory, PagedKv
from .llama import LlamaModel
from .quantized_llama import QuantizedLlama
from .weights import load_quantized, load_weights

Kv_contra = TypeVar("Kv_contra", bound=PagedKv, contravariant=True)


class Model(Protocol[Kv_contra]):
    """Weights and a forward pass over one kind of KV memory; holds no sequence's state."""

    @property
    def spec(self) -> ModelSpec:
        """The model's sizes."""
        ...

    @property
    def context_len(self) -> int:
        """Positions run to `context_len` − 1."""
        ...

    @property
    def expert_counts(self) -> ExpertCounts:
        """What the experts have computed; rows that nobody asks for are not computed everywhere."""
        ...

    def forward(self, batch: Batch, memory: Kv_contra) -> torch.Tensor:
        """Logits float32 [sampled rows, vocabulary], valid until the next call.

        Writes the rows' keys and values to `memory`. A row's results are bitwise the same in any
        batch and any chunking, at any page size, on any number of threads (on CUDA: see
        docs/decisions/0024-devices.md).
        """
        ...

    def forward_as_it_comes(
        self, batch: Batch, memory: Kv_contra, coming: ComingKv
    ) -> torch.Tensor | None:
        """Like `forward`, bit for bit; waits for each group of layers of the KV that it reads.

        None: one did not come. What was written to `memory` means nothing then.
        """
        ...


def load_llama(
    checkpoint: Checkpoint, *, dtype: str, cache_dir: Path | None, context_len: int | None = None
) -> Model[KvMemory]:
    """The checkpoint's model for the processor, computing in `dtype`: "int8" (fast) or "fp32" (the
    reference). Other dtypes, and other devices: `load_on_device`.

    Raises `UsageError` for another dtype, `ModelFileError` for a weight that is NaN or infinite.
    `cache_dir`: see `load_weights`.
    """
    match dtype:
        case "int8":
            quantized = load_quantized(checkpoint, cache_dir=cache_dir)
            return QuantizedLlama(checkpoint.spec, quantized, context_len=context_len)
        case "fp32":
            weights = load_weights(checkpoint, cache_dir=cache_dir)
            return LlamaModel(checkpoint.spec, weights, context_len=context_len)
        case _:
            raise UsageError(f"dtype {dtype!r} is not supported; supported: int8, fp32")
