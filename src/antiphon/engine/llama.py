"""The forward pass over paged KV memory, float32 on the CPU: Llama (Touvron et al. 2023), and what
other families do differently where `ModelSpec` says so.

A step's rows, from whatever sequences, form one flat batch. Matrix products are torch's, everything
else is row-wise kernels; both give a row the same bits in any batch.
"""

from collections.abc import Callable, MutableMapping
from functools import partial

import numpy as np
import torch

from antiphon.checkpoint import Activation, ModelSpec
from antiphon.types import ComingKv

from .attention import Geometry, attend, geometry_of, scratch_floats
from .batch import Batch
from .expert_counts import ExpertCounts
from .expert_mix import mix, rules_of
from .kv_memory import KvMemory
from .linear import whole_vectors
from .llama_weights import Layer, LlamaWeights
from .projection import padded_rows
from .rope import rotations
from .row_kernels import gated_gelu, gated_silu, normalise_heads, rms_norm, rotate_and_store
from .thread_team import ThreadTeam


class LlamaModel:
    """Weights and the forward pass; holds no sequence's state.

    `weights` are float32 tensors under the engine's names; the mapping is emptied. Positions
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
        self._rotations = rotations(spec, self.context_len)
        self._gated = gated_gelu if spec.activation is Activation.GELU_TANH else gated_silu
        self._rules = rules_of(spec.experts) if spec.experts is not None else None
        self.expert_counts = ExpertCounts(spec)
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
        hidden *= self.spec.embedding_scale
        normed = torch.empty_like(hidden)
        attended = hidden.new_zeros(
            len(tokens), self.spec.heads * whole_vectors(self.spec.head_dim)
        )
        gated = hidden.new_empty(len(tokens), whole_vectors(self.spec.intermediate))
        for number, layer in enumerate(weights.layers):
            if not ready(number):
                return None
            self._normalise(hidden, layer.attention_norm, normed)
            self._attend(layer, layer.qkv(normed), attended, batch, memory, number)
            self._add(hidden, layer.attention_out(attended), layer.attention_out_norm)
            self._normalise(hidden, layer.mlp_norm, normed)
            self._add(hidden, self._mlp(number, normed, gated, rows), layer.mlp_out_norm)
        return self._logits(hidden, batch.sampled)

    def _mlp(
        self, number: int, normed: torch.Tensor, gated: torch.Tensor, rows: int
    ) -> torch.Tensor:
        """What the layer's MLP gives, or its experts; `gated` is overwritten."""
        layer = self._weights.layers[number]
        if layer.experts is not None and self._rules is not None:
            count = partial(self.expert_counts.add, number)
            return mix(layer.experts, self._rules, normed, rows, self._gated, count)
        assert layer.gate_up is not None and layer.down is not None
        self._gated(layer.gate_up(normed).numpy(), gated.numpy())
        return layer.down(gated)

    def _add(self, hidden: torch.Tensor, delta: torch.Tensor, gain: torch.Tensor | None) -> None:
        if gain is not None:
            self._normalise(delta, gain, delta)
        hidden += delta

    def _normalise(self, rows: torch.Tensor, gain: torch.Tensor, target: torch.Tensor) -> None:
        epsilon = np.float32(self.spec.rms_norm_eps)
        rms_norm(rows.numpy(), gain.numpy(), epsilon, self.spec.hidden, target.numpy())

    def _attend(
        self,
        weights: Layer,
        qkv: torch.Tensor,
        attended: torch.Tensor,
        batch: Batch,
        memory: KvMemory,
        layer: int,
    ) -> None:
        """Rotate, write keys and values, and fill `attended` for the batch's rows."""
        geometry, window = geometry_of(self.spec, memory.layout), self.spec.window(layer)
        rows, output, flat = qkv.numpy(), attended.numpy(), memory.elements
        if weights.head_norms is not None:
            epsilon = np.float32(self.spec.rms_norm_eps)
            normalise_heads(rows, weights.head_norms.numpy(), epsilon, geometry)
        cosines, sines = self._rotations[2:] if window else self._rotations[:2]
        page, place = memory.homes[layer]
        places = np.ascontiguousarray(batch.places[:, page])
        rotate_and_store(rows, batch.positions, places, cosines, sines, flat, geometry, place)
        tables, blocks = batch.tables[page], batch.blocks
        scratch = self._thread_scratch(geometry)

        def share(thread: int, threads: int) -> None:
            mine = (thread, threads)
            attend(
                rows, output, flat, tables, blocks, geometry, place, window, scratch[thread], mine
            )

        self._team.run(share)

    def _logits(self, hidden: torch.Tensor, sampled: np.ndarray) -> torch.Tensor:
        if len(sampled) == 0:
            return hidden.new_empty(0, self.spec.vocab_size)
        last = hidden.new_zeros(padded_rows(len(sampled)), hidden.shape[1])
        last[: len(sampled)] = hidden[torch.from_numpy(sampled)]
        normed = torch.empty_like(last)
        self._normalise(last, self._weights.norm, normed)
        return self._weights.head(normed)[: len(sampled)]

    def _thread_scratch(self, geometry: Geometry) -> list[np.ndarray]:
        """One array a thread; torch aligns them to whole vectors."""
        while len(self._scratch) < torch.get_num_threads():
            self._scratch.append(torch.empty(scratch_floats(geometry), device="cpu").numpy())
        return self._scratch
