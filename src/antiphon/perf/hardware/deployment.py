"""A model on some devices: how it is split, what fits, and how long its steps take."""

from dataclasses import dataclass

from antiphon.errors import UsageError
from antiphon.types import Seconds, StepPlan

from ..step_work import StepWork, work_of
from .devices import Device
from .model_shapes import ModelShape

_ACTIVATION_SHARE = 0.08
"""Of a device's memory: activations, buffers, the runtime itself."""
_HOP_S: Seconds = 10e-6
"""Latency of one collective, or of one hop between stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Tensor-parallel devices in each of so many pipeline stages.

    Experts are spread over the tensor-parallel devices of their stage, whole ones (expert
    parallelism): what a device reads of them shrinks likewise.
    """

    tensor: int = 1
    pipeline: int = 1

    @property
    def devices(self) -> int:
        """All together."""
        return self.tensor * self.pipeline

    @property
    def text(self) -> str:
        """Such as "TP2 PP1"."""
        return f"TP{self.tensor} PP{self.pipeline}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Implements `core.costs.StepTime` and `PhaseTime` by a roofline.

    Each part of a layer takes as long as the slower of its arithmetic and its memory traffic
    (Williams et al. 2009), at what kernels get of the device's peaks; then come collectives.
    `step_tokens`: how much of a prompt a step computes, for `prefill_s`.
    `weight_bytes`, `kv_bytes`: of one number; 1 uses the device's 8-bit arithmetic.

    Raises `UsageError` for a split that the model's dimensions do not allow, or that does not fit.
    """

    model: ModelShape
    device: Device
    parallelism: Parallelism = Parallelism()
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0
    step_tokens: int = 2048

    def __post_init__(self) -> None:
        model, split = self.model, self.parallelism
        if split.tensor < 1 or model.heads % split.tensor:
            raise UsageError(
                f"tensor parallelism {split.tensor} does not divide the {model.heads} heads of "
                f"{model.name}"
            )
        if not 1 <= split.pipeline <= model.layers:
            raise UsageError(
                f"pipeline parallelism {split.pipeline}: {model.name} has {model.layers} layers"
            )
        if self.kv_tokens < model.context // 64:
            raise UsageError(
                f"{model.name} does not fit {split.text} on {self.device.name}: its weights take "
                f"{self.weights_bytes / 1e9:.0f} GB of {split.devices} × "
                f"{self.device.memory_bytes / 1e9:.0f} GB: use more devices, or fewer bits"
            )

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    @property
    def weights_bytes(self) -> float:
        """Of all devices together."""
        return self.model.parameters * self.weight_bytes

    @property
    def kv_bytes_per_token(self) -> float:
        """Of all layers and devices together."""
        return self.model.layers * self.model.kv_values_per_token * self.kv_bytes

    @property
    def kv_tokens(self) -> int:
        """Tokens whose KV fits beside the weights; at most 0 if these do not fit."""
        memory = self.device.memory_bytes * self.parallelism.devices * (1 - _ACTIVATION_SHARE)
        copies = self._kv_copies
        return int((memory - self.weights_bytes) / (self.kv_bytes_per_token * copies))

    @property
    def _kv_copies(self) -> float:
        """Latent KV is not split by heads, and KV heads only down to one a device."""
        split = self.parallelism.tensor
        if self.model.latent is not None:
            return split
        return max(1.0, split / self.model.kv_heads)

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    def seconds(self, plan: StepPlan) -> Seconds:
        """See `core.costs.StepTime`."""
        return self.seconds_of(work_of(plan))

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        """See `core.costs.StepTime`. By the trapezoid of the first and the last pass."""
        first = work_of(plan)
        more = first.chunks * (passes - 1)
        last = first._replace(context=first.context + more, attention=first.attention + more)
        return passes * (self.seconds_of(first) + self.seconds_of(last)) / 2

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        """See `core.costs.PhaseTime`."""
        total, end = 0.0, start + tokens
        while start < end:
            length = min(self.step_tokens, end - start)
            total += self.seconds_of(StepWork().plus(start, length, sampled=start + length == end))
            start += length
        return total

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        """See `core.costs.PhaseTime`."""
        read = context_tokens + sequences
        return self.seconds_of(StepWork(sequences, sequences, sequences, read, read))

    def seconds_of(self, work: StepWork) -> Seconds:
        """How long a step occupies each stage of the pipeline; 0 for none.

        With several stages, steps follow each other so far apart, and a step is done `lag_s` later.
        """
        if not work.chunks:
            return 0.0
        model, split = self.model, self.parallelism
        layers = (
            model.layers * (self.device.launch_s + self._collectives_s(work))
            + self._matrices_s(model.dense_parameters, work.tokens)
            + self._experts_s(work.tokens)
            + self._attention_s(work)
        )
        head = self._matrices_s(model.head_parameters, work.sampled) if work.sampled else 0.0
        hops = (split.pipeline - 1) * self._hop_s(work) / split.pipeline
        return layers / split.pipeline + head + hops

    def lag_s(self, plan: StepPlan) -> Seconds:
        """How much later a step's tokens are there than the next step may begin."""
        return (self.parallelism.pipeline - 1) * self.seconds(plan)

    def _matrices_s(self, parameters: float, rows: float) -> Seconds:
        split = self.parallelism.tensor
        return self._slower_s(
            2.0 * parameters * rows / split,
            parameters * self.weight_bytes / split,
            self._flops,
        )

    def _experts_s(self, tokens: int) -> Seconds:
        """Of the routed experts, those that at least one of the tokens goes to are read."""
        experts = self.model.experts
        if experts is None:
            return 0.0
        one = self.model.ffn_parameters(experts.ffn)
        sparse = self.model.layers - experts.dense_layers
        met = experts.routed * (1 - (1 - experts.active / experts.routed) ** tokens)
        split = self.parallelism.tensor
        return sparse * self._slower_s(
            2.0 * one * experts.active * tokens / split,
            met * one * self.weight_bytes / split,
            self._flops,
        )

    def _attention_s(self, work: StepWork) -> Seconds:
        """Scores and sums over values, 4 operations a pair, head and dimension; KV is read once."""
        model, split = self.model, self.parallelism.tensor
        width = model.head_dim
        if model.latent is not None:  # in the latent space (absorbed projections)
            width = model.latent.rank + model.latent.rope_dim
        flops = 4.0 * work.attention * model.heads * width * model.layers / split
        read = work.context * self.kv_bytes_per_token * self._kv_copies / split
        return self._slower_s(flops, read, self.device.flops_16)

    def _collectives_s(self, work: StepWork) -> Seconds:
        """Two all-reduces a layer, as rings, of one activation row a token."""
        split = self.parallelism.tensor
        if split == 1:
            return 0.0
        moved = 2.0 * (split - 1) / split * work.tokens * self.model.hidden * 2
        return 2 * (_HOP_S + moved / self.device.peer_bytes_per_s)

    def _hop_s(self, work: StepWork) -> Seconds:
        return _HOP_S + work.tokens * self.model.hidden * 2 / self.device.peer_bytes_per_s

    def _slower_s(self, flops: float, moved: float, peak: float) -> Seconds:
        device = self.device
        return max(
            flops / (peak * device.compute_efficiency),
            moved / (device.memory_bytes_per_s * device.memory_efficiency),
        )

    @property
    def _flops(self) -> float:
        return self.device.flops_8 if self.weight_bytes <= 1 else self.device.flops_16
