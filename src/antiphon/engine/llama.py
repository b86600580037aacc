"""The Llama family's forward pass over paged KV memory (Touvron et al. 2023), float32 on the CPU.

A step's rows, from whatever sequences, form one flat batch. Matrix products are torch's, everything
else is row-wise kernels; both give a row the same bits in any batch.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass

import numpy as np
import torch

from antiphon.checkpoint import ModelSpec
from antiphon.errors import UsageError

from .attention import Geometry, attend, scratch_floats
from .batch import Batch
from .kv_memory import KvMemory
from .lanes import LANES
from .projection import padded_rows, project
from .rope import rotation_table
from .row_kernels import gated_silu, rms_norm, rotate_and_store
from .thread_team import ThreadTeam


@dataclass(frozen=True, slots=True)
class Linear:
    """A projection: weight [outputs, inputs] and, in some models, a bias [outputs]."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """See `projection.project`."""
        return project(rows, self.weight, self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer; projections that share their input are fused into one product."""

    attention_norm: torch.Tensor
    qkv: Linear
    attention_out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class LlamaModel:
    """Weights and the forward pass; holds no sequence's state.

    `weights` are float32 tensors under their Hugging Face names. They are taken out of the mapping
    one by one, so that fused copies don't double the memory. Positions run to `context_len` − 1
    (default: the model's own context). Raises `UsageError` for a model that the kernels can't run.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: MutableMapping[str, torch.Tensor],
        *,
        context_len: int | None = None,
    ) -> None:
        _check_widths(spec)
        self.spec = spec
        self.context_len = context_len or spec.context_len
        self._embedding = weights.pop("model.embed_tokens.weight")
        self._layers = [_take_layer(spec, weights, layer) for layer in range(spec.layers)]
        self._norm = weights.pop("model.norm.weight")
        tied = spec.tied_embeddings
        self._head = Linear(self._embedding if tied else weights.pop("lm_head.weight"))
        cosines, sines = rotation_table(spec, self.context_len)
        self._cosines, self._sines = cosines.numpy(), sines.numpy()
        self._team = ThreadTeam()
        self._scratch: list[np.ndarray] = []

    @torch.inference_mode()
    def forward(self, batch: Batch, memory: KvMemory) -> torch.Tensor:
        """Logits float32 [sampled rows, vocabulary]. Writes the rows' keys and values to `memory`.

        All of a layer's rows are written before any is read, so a row sees its whole batch's
        earlier positions.
        """
        rows = len(batch.tokens)
        tokens = np.zeros(padded_rows(rows), np.int64)
        tokens[:rows] = batch.tokens
        hidden = self._embedding[torch.from_numpy(tokens)]
        normed = torch.empty_like(hidden)
        attended = torch.zeros(len(tokens), self.spec.heads * self.spec.head_dim)
        gated = torch.empty(len(tokens), self.spec.intermediate)
        for number, layer in enumerate(self._layers):
            self._normalise(hidden, layer.attention_norm, normed)
            self._attend(layer.qkv(normed), attended, batch, memory, number)
            hidden += layer.attention_out(attended)
            self._normalise(hidden, layer.mlp_norm, normed)
            gated_silu(layer.gate_up(normed).numpy(), gated.numpy())
            hidden += layer.down(gated)
        return self._logits(hidden, batch.sampled)

    def _normalise(self, rows: torch.Tensor, gain: torch.Tensor, target: torch.Tensor) -> None:
        epsilon = np.float32(self.spec.rms_norm_eps)
        rms_norm(rows.numpy(), gain.numpy(), epsilon, target.numpy())

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
        rows, output, flat = qkv.numpy(), attended.numpy(), memory.flat.numpy()
        places, cosines, sines = batch.places, self._cosines, self._sines
        rotate_and_store(rows, batch.positions, places, cosines, sines, flat, geometry, layer)
        tables, blocks = batch.tables, batch.blocks
        scratch = self._thread_scratch(geometry)

        def share(thread: int, threads: int) -> None:
            mine = (thread, threads)
            attend(rows, output, flat, tables, blocks, geometry, layer, scratch[thread], mine)

        self._team.run(share)

    def _geometry(self, memory: KvMemory) -> Geometry:
        layout = memory.layout
        return Geometry(
            heads=self.spec.heads,
            kv_heads=layout.kv_heads,
            head_dim=layout.head_dim,
            page_tokens=layout.page_tokens,
            page_stride=layout.page_stride,
        )

    def _logits(self, hidden: torch.Tensor, sampled: np.ndarray) -> torch.Tensor:
        if len(sampled) == 0:
            return torch.empty(0, self.spec.vocab_size)
        last = torch.zeros(padded_rows(len(sampled)), self.spec.hidden)
        last[: len(sampled)] = hidden[torch.from_numpy(sampled)]
        normed = torch.empty_like(last)
        self._normalise(last, self._norm, normed)
        return self._head(normed)[: len(sampled)]

    def _thread_scratch(self, geometry: Geometry) -> list[np.ndarray]:
        """One array a thread; torch aligns them to whole vectors."""
        while len(self._scratch) < torch.get_num_threads():
            self._scratch.append(torch.empty(scratch_floats(geometry)).numpy())
        return self._scratch


def _check_widths(spec: ModelSpec) -> None:
    if spec.heads % spec.kv_heads:
        raise UsageError(
            f"{spec.heads} attention heads can't share {spec.kv_heads} key-value heads"
        )
    for name in ("hidden", "head_dim", "intermediate"):
        width = getattr(spec, name)
        if width % LANES:
            raise UsageError(
                f"this model's {name} is {width}; the CPU kernels need a multiple of {LANES}"
            )


def _take_layer(spec: ModelSpec, weights: MutableMapping[str, torch.Tensor], layer: int) -> Layer:
    prefix = f"model.layers.{layer}."

    def take(*names: str, bias: bool) -> Linear:
        return Linear(
            _fused([weights.pop(f"{prefix}{name}.weight") for name in names]),
            _fused([weights.pop(f"{prefix}{name}.bias") for name in names]) if bias else None,
        )

    attention = tuple(f"self_attn.{name}_proj" for name in ("q", "k", "v"))
    return Layer(
        attention_norm=weights.pop(prefix + "input_layernorm.weight"),
        qkv=take(*attention, bias=spec.attention_bias),
        attention_out=take("self_attn.o_proj", bias=spec.attention_bias),
        mlp_norm=weights.pop(prefix + "post_attention_layernorm.weight"),
        gate_up=take("mlp.gate_proj", "mlp.up_proj", bias=spec.mlp_bias),
        down=take("mlp.down_proj", bias=spec.mlp_bias),
    )


def _fused(tensors: list[torch.Tensor]) -> torch.Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)
