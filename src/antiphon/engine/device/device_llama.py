"""The forward pass on a torch device: Llama, and what other families do differently (`ModelSpec`).

    rows ──block by block: norm, project, turn──► pages ──attend──► block by block: project, MLP ──►

It does what `engine.llama` does, in torch's operations: same names, weights and layout of pages.
Products are in the weights' dtype, everything between them in float32.
"""

from collections.abc import Callable

import numpy as np
import torch

from antiphon.checkpoint import Activation, ModelSpec
from antiphon.types import ComingKv

from ..batch import Batch
from ..expert_counts import ExpertCounts
from ..linear import Linear, Tensors
from ..llama_weights import Layer, LlamaWeights
from ..reference import gated_gelu, gated_silu
from .device_kv import DeviceKv
from .device_weights import DeviceTensors
from .expert_rows import mix
from .paged_attention import AttentionSizes, LayerView, attend
from .rotary import Rotary
from .shapes import Shapes, shapes_of
from .step_tensors import StepShape, StepTensors, pack

Compute = Callable[[StepTensors, DeviceKv], torch.Tensor]
"""Logits float32 [padded sampled rows, vocabulary] of a step, on its device."""
Runner = Callable[[Compute, StepShape, torch.Tensor, DeviceKv], torch.Tensor]
"""Computes a step of packed numbers, which are on the processor: see `run_at_once`."""


def run_at_once(
    compute: Compute, shape: StepShape, packed: torch.Tensor, memory: DeviceKv
) -> torch.Tensor:
    """Each operation as it comes."""
    return compute(StepTensors.of(shape, packed.to(memory.device)), memory)


class DeviceLlama:
    """Weights on a device and the forward pass over pages there; holds no sequence's state.

    `stored` has the weights, float32 under the engine's names. Positions run to `context_len` − 1
    (default: the model's own context). `runner` runs steps of one token a sequence.
    """

    def __init__(
        self,
        spec: ModelSpec,
        stored: Tensors,
        *,
        device: torch.device,
        dtype: torch.dtype,
        context_len: int | None = None,
        shapes: Shapes | None = None,
        runner: Runner = run_at_once,
    ) -> None:
        self.spec = spec
        self.device = device
        self.context_len = context_len or spec.context_len
        self.shapes = shapes or shapes_of(device, dtype)
        self.expert_counts = ExpertCounts(spec)
        self._dtype = dtype
        self._runner = runner if spec.experts is None else run_at_once
        self._weights = LlamaWeights.take(spec, DeviceTensors(stored, device, dtype))
        self._rotary = Rotary(spec, self.context_len, device)
        self._gated = gated_gelu if spec.activation is Activation.GELU_TANH else gated_silu
        self._windows = tuple(sorted({spec.window(layer) for layer in range(spec.layers)}))
        self._real_rows = 0

    @torch.inference_mode()
    def forward(self, batch: Batch, memory: DeviceKv) -> torch.Tensor:
        """Logits float32 [sampled rows, vocabulary], on the processor. See `Model`.

        What others have brought of the pages that it reads comes to the device first; pages that
        it completes are copied for them when it is done.
        """
        layout, nobodys_page = memory.layout, memory.nobodys_page
        shape, numbers, read = pack(batch, layout, self.shapes, self._windows, nobodys_page)
        memory.bring(read)
        self._real_rows = len(batch.tokens)
        decodes = len(batch.blocks) == len(batch.tokens)
        run = self._runner if decodes else run_at_once
        logits = run(self._compute, shape, torch.from_numpy(numbers), memory)
        said = logits[: len(batch.sampled)].cpu()
        if memory.device.type == "cuda":
            torch.cuda.synchronize(memory.device)
        memory.to_host(_completed(batch, memory))
        return said

    def forward_as_it_comes(
        self, batch: Batch, memory: DeviceKv, coming: ComingKv
    ) -> torch.Tensor | None:
        """See `Model`. Waits for all groups before it begins: pages come to the device whole."""
        if all(coming.wait(group) for group in range(len(coming.starts))):
            return self.forward(batch, memory)
        return None

    def _compute(self, step: StepTensors, memory: DeviceKv) -> torch.Tensor:
        """See `Compute`: nothing in here looks at a number, so that it can be captured; but for a
        mixture of experts, which is never captured."""
        weights, spec = self._weights, self.spec
        hidden = weights.embedding[step.tokens].float() * spec.embedding_scale
        for number, layer in enumerate(weights.layers):
            attended = self._attend(number, layer, hidden, step, memory)
            hidden = self._after_attention(layer, hidden, attended)
            hidden = self._after_mlp(number, layer, hidden)
        if step.shape.sampled == 0:
            return hidden.new_empty(0, spec.vocab_size)
        return self.shapes.by_block(self._head, hidden[step.sampled])

    def _attend(
        self,
        number: int,
        layer: Layer,
        hidden: torch.Tensor,
        step: StepTensors,
        memory: DeviceKv,
    ) -> torch.Tensor:
        """Writes the rows' keys and values, then attends: float32 [rows, heads · head_width]."""
        spec, window = self.spec, self.spec.window(number)
        width, turned = memory.layout.head_width, spec.heads + spec.kv_heads

        def project(rows: torch.Tensor) -> torch.Tensor:
            qkv = self._product(layer.qkv, self._normed(rows, layer.attention_norm, spec.hidden))
            qkv = qkv.view(len(rows), -1, width)
            if layer.head_norms is None:
                return qkv
            queries, keys, values = qkv.split([spec.heads, spec.kv_heads, spec.kv_heads], dim=1)
            queries = self._normed(queries, layer.head_norms[0], spec.head_dim)
            keys = self._normed(keys, layer.head_norms[1], spec.head_dim)
            return torch.cat([queries, keys, values], dim=1)

        qkv = self.shapes.by_block(project, hidden)
        heads = self._rotary.turn(qkv[:, :turned], step.positions, windowed=window > 0)
        place, within = memory.homes[number].tolist()
        pages = memory.layers[within]
        both = torch.cat([heads[:, spec.heads :], qkv[:, turned:]], dim=1)
        both = both.view(len(both), 2, spec.kv_heads, width).to(pages.dtype)
        pages[step.pages[place], :, :, step.slots] = both
        sizes = AttentionSizes(
            heads=spec.heads, kv_heads=spec.kv_heads, head_width=width, scale=spec.score_scale
        )
        view = LayerView(window=window, number=self._windows.index(window), place=place)
        return attend(heads[:, : spec.heads], pages, step, sizes, self.shapes, view)

    def _after_attention(
        self, layer: Layer, hidden: torch.Tensor, attended: torch.Tensor
    ) -> torch.Tensor:
        def add(rows: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
            delta = self._product(layer.attention_out, given)
            return rows + self._normed_if(delta, layer.attention_out_norm)

        return self.shapes.by_block(add, hidden, attended)

    def _after_mlp(self, number: int, layer: Layer, hidden: torch.Tensor) -> torch.Tensor:
        def normed(rows: torch.Tensor) -> torch.Tensor:
            return self._normed(rows, layer.mlp_norm, self.spec.hidden)

        def add(rows: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
            return rows + self._normed_if(given, layer.mlp_out_norm)

        if layer.experts is not None and self.spec.experts is not None:
            rows = self.shapes.by_block(normed, hidden)
            given, chosen = mix(
                rows, self._real_rows, layer.experts, self.spec.experts, self.shapes, self._mlp
            )
            self.expert_counts.add(number, chosen.cpu().numpy())
            return self.shapes.by_block(add, hidden, given)
        gate_up, down = layer.gate_up, layer.down
        assert gate_up is not None and down is not None

        def whole(rows: torch.Tensor) -> torch.Tensor:
            return add(rows, self._mlp(gate_up, down, normed(rows)))

        return self.shapes.by_block(whole, hidden)

    def _mlp(self, gate_up: Linear, down: Linear, normed: torch.Tensor) -> torch.Tensor:
        return self._product(down, self._gated(self._product(gate_up, normed)))

    def _head(self, rows: torch.Tensor) -> torch.Tensor:
        weights = self._weights
        return self._product(weights.head, self._normed(rows, weights.norm, self.spec.hidden))

    def _product(self, linear: Linear, rows: torch.Tensor) -> torch.Tensor:
        """In the weights' dtype; float32 goes in and comes out."""
        return linear(rows.to(self._dtype)).float()

    def _normed_if(self, rows: torch.Tensor, gain: torch.Tensor | None) -> torch.Tensor:
        return rows if gain is None else self._normed(rows, gain, self.spec.hidden)

    def _normed(self, rows: torch.Tensor, gain: torch.Tensor, count: int) -> torch.Tensor:
        """See `row_kernels.rms_norm`: the mean is over `count` columns, the others are zero."""
        mean = rows.square().sum(-1, keepdim=True) / count
        return rows * torch.rsqrt(mean + self.spec.rms_norm_eps) * gain


def _completed(batch: Batch, memory: DeviceKv) -> np.ndarray:
    """Pages whose last slot the batch has written."""
    size = memory.layout.page_tokens
    last = batch.positions % size == size - 1
    return batch.places[last].ravel() // memory.layout.page_stride
