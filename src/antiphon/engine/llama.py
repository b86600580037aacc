"""The Llama family's forward pass over paged KV memory (Touvron et al. 2023), float32 on the CPU.

A step's rows, from whatever sequences, form one flat batch. Matrix products are torch's, everything
else is row-wise kernels; both give a row the same bits in any batch.
"""

from collections.abc import Callable, MutableMapping

import numpy as np
import torch

from antiphon.checkpoint import ModelSpec
from antiphon.types import ComingKv

from .attention import Geometry, attend, scratch_floats
from .batch import Batch
from .kv_memory import KvMemory
from .llama_weights import LlamaWeights, whole_vectors
from .projection import padded_rows
from .rope import rotation_table
from .row_kernels import gated_silu, rms_norm, rotate_and_store
from .thread_team import ThreadTeam


class LlamaModel:
    """Weights and the forward pass; holds no sequence's state.

    `weights` are float32 tensors under their Hugging Face names; the mapping is emptied. Positions
    run to `context_len` − 1 (default: the model's own context).
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: MutableMapping[str, torch.Tensor],
        *,
        context_len: int | None = None,
    ) -> None:
        self.spec = spec
        self.context_len = context_len or spec.context_len
        self._weights = LlamaWeights.take(spec, weights)
        cosines, sines = rotation_table(spec, self.context_len)
        self._cosines, self._sines = cosines.numpy(), sines.numpy()
        self._team = ThreadTeam()
        self._scratch: list[np.ndarray] = []

    def forward(self, batch: Batch, memory: KvMemory) -> torch.Tensor:
        """Logits float32 [sampled rows, vocabulary]. Writes the rows' keys and values to `memory`.

        All of a layer's rows are written before any is read, so a row sees earlier positions of
        its own batch.
        """
        logits = self._pass(batch, memory, lambda layer: True)
        assert logits is not None
        return logits

    def forward_as_it_comes(
        self, batch: Batch, memory: KvMemory, coming: ComingKv
    ) -> torch.Tensor | None:
        """See `Model`."""
        groups = {layer: group for group, layer in enumerate(coming.starts)}
        return self._pass(
            batch, memory, lambda layer: layer not in groups or coming.wait(groups[layer])
        )

    @torch.inference_mode()
    def _pass(
        self, batch: Batch, memory: KvMemory, ready: Callable[[int], bool]
    ) -> torch.Tensor | None:
        """`forward`, which asks before each layer; None: it was told that one does not come."""
        rows, weights = len(batch.tokens), self._weights
        tokens = np.zeros(padded_rows(rows), np.int64)
        tokens[:rows] = batch.tokens
        hidden = weights.embedding[torch.from_numpy(tokens)]
        normed = torch.empty_like(hidden)
        attended = torch.zeros(len(tokens), self.spec.heads * whole_vectors(self.spec.head_dim))
        gated = torch.empty(len(tokens), whole_vectors(self.spec.intermediate))
        for number, layer in enumerate(weights.layers):
            if not ready(number):
                return None
            self._normalise(hidden, layer.attention_norm, normed)
            self._attend(layer.qkv(normed), attended, batch, memory, number)
            hidden += layer.attention_out(attended)
            self._normalise(hidden, layer.mlp_norm, normed)
            gated_silu(layer.gate_up(normed).numpy(), gated.numpy())
            hidden += layer.down(gated)
        return self._logits(hidden, batch.sampled)

    def _normalise(self, rows: torch.Tensor, gain: torch.Tensor, target: torch.Tensor) -> None:
        epsilon = np.float32(self.spec.rms_norm_eps)
        rms_norm(rows.numpy(), gain.numpy(), epsilon, self.spec.hidden, target.numpy())

    def _attend(
        self,
        qkv: torch.Tensor,
        attended: torch.Tensor,
        batch: Batch,
        memory: KvMemory,
        layer: int,
    ) -> None:
        """Rotate, write keys and values, and fill `attended` for the batch's rows."""
        geometry = self._geometry(memory)
        rows, output, flat = qkv.numpy(), attended.numpy(), memory.elements
        places, cosines, sines = batch.places, self._cosines, self._sines
        rotate_and_store(rows, batch.positions, places, cosines, sines, flat, geometry, layer)
        tables, blocks = batch.tables, batch.blocks
        scratch = self._thread_scratch(geometry)

        def share(thread: int, threads: int) -> None:
            mine = (thread, threads)
            attend(rows, output, flat, tables, blocks, geometry, layer, scratch[thread], mine)

        self._team.run(share)

    def _geometry(self, memory: KvMemory) -> Geometry:
        return Geometry(
            heads=self.spec.heads,
            kv_heads=self.spec.kv_heads,
            head_dim=self.spec.head_dim,
            head_width=memory.layout.head_width,
            page_tokens=memory.layout.page_tokens,
            page_stride=memory.layout.page_stride,
        )

    def _logits(self, hidden: torch.Tensor, sampled: np.ndarray) -> torch.Tensor:
        if len(sampled) == 0:
            return torch.empty(0, self.spec.vocab_size)
        last = torch.zeros(padded_rows(len(sampled)), hidden.shape[1])
        last[: len(sampled)] = hidden[torch.from_numpy(sampled)]
        normed = torch.empty_like(last)
        self._normalise(last, self._weights.norm, normed)
        return self._weights.head(normed)[: len(sampled)]

    def _thread_scratch(self, geometry: Geometry) -> list[np.ndarray]:
        """One array a thread; torch aligns them to whole vectors."""
        while len(self._scratch) < torch.get_num_threads():
            self._scratch.append(torch.empty(scratch_floats(geometry)).numpy())
        return self._scratch
