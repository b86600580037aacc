"""Models with int8 weights on the CPU: one compiled call a step and thread."""

from collections.abc import Callable, Iterable

import numpy as np
import torch

from antiphon.checkpoint import Activation, ModelSpec
from antiphon.types import ComingKv

from .attention import Geometry, geometry_of, scratch_floats
from .batch import Batch
from .expert_choice import NO_EXPERTS
from .expert_counts import ExpertCounts
from .expert_mix import rules_of
from .int8.forward_room import PROJECTIONS, Pointers, Room, Rows, Sizes
from .int8.llama_forward import forward
from .kv_memory import KvMemory
from .linear import whole_vectors
from .quantized_weights import QuantizedLinear, QuantizedWeights, attention_shapes, mlp_shapes
from .rope import rotations
from .thread_team import ThreadTeam

_LAYER_WIDTH = 19
"""Of `Pointers.layers`."""
_WORTH_SHARING = 2**28
"""Multiply-adds of a step from which on threads share it: about 8 ms of one core.

A single token of a small model is as fast on one core, which then waits for nobody.
"""


class QuantizedLlama:
    """int8 weights per channel, 12-bit activations per row, exact sums between them.

    Holds no sequence's state. Attention, norms and the residual stream are float32. A row with a
    NaN or an infinity gets NaN logits, and no other row does. Positions run to `context_len` − 1
    (default: the model's own context).
    """

    def __init__(
        self, spec: ModelSpec, weights: QuantizedWeights, *, context_len: int | None = None
    ) -> None:
        self.spec = spec
        self.context_len = context_len or spec.context_len
        self._weights = weights  # the kernel has addresses only
        self._pointers = _pointers(spec, weights)
        self._weight_count = weights.count
        self._sizes = _sizes(spec)
        self._epsilon = np.float32(spec.rms_norm_eps)
        self._rotations = rotations(spec, self.context_len)
        self._team = ThreadTeam()
        self._rules = rules_of(spec.experts) if spec.experts is not None else NO_EXPERTS
        self._buffers = _Buffers(self._sizes, self._rules.active + self._rules.shared)
        self.expert_counts = ExpertCounts(spec)
        self._scratch: list[np.ndarray] = []

    def forward(self, batch: Batch, memory: KvMemory) -> torch.Tensor:
        """Logits float32 [sampled rows, vocabulary], valid until the next call.

        Writes the rows' keys and values to `memory`. All of a layer's rows are written before any
        is read, so a row sees earlier positions of its own batch.
        """
        layers, logits = self._step(batch, memory)
        layers(0, len(self._weights.layers))
        return torch.from_numpy(logits)

    def forward_as_it_comes(
        self, batch: Batch, memory: KvMemory, coming: ComingKv
    ) -> torch.Tensor | None:
        """See `Model`."""
        layers, logits = self._step(batch, memory)
        ends = (*coming.starts[1:], len(self._weights.layers))
        for group, (first, end) in enumerate(zip(coming.starts, ends, strict=True)):
            if not coming.wait(group):
                return None
            layers(first, end)
        return torch.from_numpy(logits)

    def _step(
        self, batch: Batch, memory: KvMemory
    ) -> tuple[Callable[[int, int], None], np.ndarray]:
        """What computes the layers from one number up to another, all of them in order; and where
        the logits are after the last."""
        rooms, logits = self._buffers.of(len(batch.tokens), len(batch.sampled))
        geometry = geometry_of(self.spec, memory.layout)
        scratch = self._thread_scratch(geometry)
        counts = self.expert_counts.of_threads(len(scratch))
        rows = Rows(
            batch.tokens,
            batch.positions,
            batch.places,
            batch.tables,
            memory.homes,
            batch.blocks,
            batch.sampled,
        )
        flat, barrier = memory.elements, self._team.barrier
        alone = len(rows.tokens) * self._weight_count < _WORTH_SHARING

        def layers(first: int, end: int) -> None:
            def share(thread: int, threads: int) -> None:
                forward(
                    self._pointers,
                    self._sizes,
                    self._rules,
                    geometry,
                    self._epsilon,
                    rows,
                    rooms,
                    flat,
                    self._rotations,
                    scratch[thread],
                    counts[thread],
                    logits,
                    (first, end),
                    (thread, threads, barrier),
                )

            if alone:
                share(0, 1)
            else:
                self._team.run(share)

        return layers, logits

    def _thread_scratch(self, geometry: Geometry) -> list[np.ndarray]:
        """One array a thread; torch aligns them to whole vectors."""
        while len(self._scratch) < torch.get_num_threads():
            self._scratch.append(torch.empty(scratch_floats(geometry), device="cpu").numpy())
        return self._scratch


def _sizes(spec: ModelSpec) -> Sizes:
    attention = attention_shapes(spec)
    experts = 0 if spec.experts is None else spec.experts.intermediate
    return Sizes(
        hidden=whole_vectors(spec.hidden),
        mean_count=spec.hidden,
        qkv=attention["qkv"][0],
        attended=attention["attention_out"][1],
        inner=mlp_shapes(spec)["down"][1],
        expert_inner=whole_vectors(experts),
        vocabulary=spec.vocab_size,
        embedding_scale=np.float32(spec.embedding_scale),
        gelu=spec.activation is Activation.GELU_TANH,
    )


def _pointers(spec: ModelSpec, weights: QuantizedWeights) -> Pointers:
    def projection(linear: QuantizedLinear | None) -> tuple[int, int, int]:
        if linear is None:
            return 0, 0, 0
        bias = 0 if linear.bias is None else linear.bias.data_ptr()
        weight = linear.weight
        return weight.panels.ctypes.data, weight.channel_scale.ctypes.data, bias

    layers = []
    for layer in weights.layers:
        row = [layer.attention_norm.data_ptr(), layer.mlp_norm.data_ptr()]
        for name in PROJECTIONS:
            row += projection(getattr(layer, name))
        optional = (layer.head_norms, layer.attention_out_norm, layer.mlp_out_norm)
        row += [0 if gain is None else gain.data_ptr() for gain in optional]
        if layer.experts is not None:
            row += [layer.experts.router.data_ptr(), layer.experts.correction.data_ptr()]
        layers.append([*row, 0, 0][:_LAYER_WIDTH])
    head = projection(weights.head)
    rest = [weights.embedding.data_ptr(), weights.norm.data_ptr(), *head[:2]]
    windows = [spec.window(number) for number in range(spec.layers)]
    return Pointers(
        np.array(layers, np.int64),
        np.array(rest, np.int64),
        _limits(weights),
        np.array(windows, np.int64),
        _expert_addresses(weights),
    )


def _expert_addresses(weights: QuantizedWeights) -> np.ndarray:
    """See `Pointers.experts`."""
    of_layers = [layer.experts for layer in weights.layers]
    most = max((len(experts.down) for experts in of_layers if experts is not None), default=0)
    found = np.zeros((len(of_layers), most, 4), np.int64)
    for number, experts in enumerate(of_layers):
        if experts is None:
            continue
        for at, linears in enumerate(zip(experts.gate_up, experts.down, strict=True)):
            packed = [linear.weight for linear in linears]
            found[number, at] = [
                array.ctypes.data
                for weight in packed
                for array in (weight.panels, weight.channel_scale)
            ]
    return found


def _limits(weights: QuantizedWeights) -> np.ndarray:
    """Rows of one width are rounded to one limit: the smallest that their weights allow."""

    def smallest(linears: Iterable[QuantizedLinear | None]) -> int:
        limits = (linear.weight.activation_limit for linear in linears if linear is not None)
        return min(limits, default=1)

    layers = weights.layers
    experts = [layer.experts for layer in layers if layer.experts is not None]
    wide = [linear for one in experts for linear in one.gate_up]
    of_hidden = (weights.head, *wide, *(o for layer in layers for o in (layer.qkv, layer.gate_up)))
    limits = (
        smallest(of_hidden),
        smallest(layer.attention_out for layer in layers),
        smallest(layer.down for layer in layers),
        smallest(linear for one in experts for linear in one.down),
    )
    return np.array(limits, np.float32)


class _Buffers:
    """Memory of a step, kept from step to step; it grows to the largest one so far."""

    def __init__(self, sizes: Sizes, slots: int) -> None:
        self._sizes, self._slots = sizes, slots
        self._flat: dict[str, torch.Tensor] = {}
        self._views: dict[tuple[int, int], tuple[tuple[Room, Room], np.ndarray]] = {}

    def of(self, rows: int, sampled: int) -> tuple[tuple[Room, Room], np.ndarray]:
        """Buffers for `rows` rows and for the `sampled` ones of them, and logits of the latter.

        What was handed out before is overwritten.
        """
        if (rows, sampled) not in self._views:
            rooms = self._room("", rows), self._room("sampled_", sampled)
            logits = self._view("logits", (sampled, self._sizes.vocabulary), torch.float32)
            self._views = {(rows, sampled): (rooms, logits)}
        return self._views[rows, sampled]

    def _room(self, prefix: str, rows: int) -> Room:
        sizes = self._sizes
        floats = {
            "hidden": sizes.hidden,
            "delta": sizes.hidden,
            "qkv": sizes.qkv,
            "attended": sizes.attended,
            "gate_up": 2 * sizes.inner,
        }
        rounded = {
            "values": sizes.hidden,
            "attended_values": sizes.attended,
            "inner_values": sizes.inner,
        }
        widths = [(floats, torch.float32), (rounded, torch.int16)]
        return Room(
            **{
                name: self._view(prefix + name, (rows, width), dtype)
                for sizes_of, dtype in widths
                for name, width in sizes_of.items()
            },
            scale=self._view(prefix + "scale", (rows,), torch.float32),
            chosen=self._view(prefix + "chosen", (rows, self._slots), torch.int64),
            shares=self._view(prefix + "shares", (rows, self._slots), torch.float32),
            given=self._view(prefix + "given", (rows * self._slots, sizes.hidden), torch.float32),
        )

    def _view(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> np.ndarray:
        """torch aligns to whole vectors."""
        count = torch.Size(shape).numel()
        flat = self._flat.get(name)
        if flat is None or len(flat) < count:
            flat = self._flat[name] = torch.zeros(count, dtype=dtype, device="cpu")
        return flat[:count].view(shape).numpy()
