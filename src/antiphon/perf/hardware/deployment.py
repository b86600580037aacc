"""A model on some devices: how it is split, what fits, and how long its steps take."""

from dataclasses import dataclass, field

from antiphon.errors import UsageError
from antiphon.types import Seconds, StepPlan

from ..step_work import StepWork, has_decodes, work_of
from .devices import Device
from .model_shapes import ModelShape
from .parallelism import Parallelism
from .roofline import Roofline, kv_copies

ACTIVATION_SHARE = 0.08
"""Of a device's memory: activations, buffers, the runtime itself. An assumption."""
LEAST_KV_TOKENS = 1024
"""With room for fewer nothing can be served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Implements `core.costs.StepTime` and `PhaseTime` by a roofline (`roofline.py`).

    `step_tokens`: how much of a prompt a step computes, for `prefill_s`.
    `weight_bytes`, `kv_bytes`: of one number; weights of 1 use the device's 8-bit arithmetic.

    A pipeline computes prompts one behind the other: a step takes as long as its slowest stage, and
    its tokens are there `lag_s` later. A step with decodes needs all tokens of the one before, so
    its sequences are spread over the stages in as many smaller batches, and it takes as long as all
    of them need to go round once.

    Raises `UsageError` for a split that the model's dimensions do not allow, or that does not fit.
    """

    model: ModelShape
    device: Device
    parallelism: Parallelism = field(default_factory=Parallelism)
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0
    step_tokens: int = 2048
    _roofline: Roofline = field(init=False, repr=False, compare=False)
    _share: float = field(init=False, repr=False, compare=False)
    """Of all layers: what the longest stage has."""

    def __post_init__(self) -> None:
        model, split = self.model, self.parallelism
        _check_numbers(self)
        if split.tensor < 1 or model.heads % split.tensor:
            raise UsageError(
                f"tensor parallelism {split.tensor} does not divide the {model.heads} heads of "
                f"{model.name}: use one of {_divisors(model.heads)}"
            )
        if not 1 <= split.pipeline <= model.layers:
            raise UsageError(
                f"pipeline parallelism {split.pipeline}: {model.name} has {model.layers} layers, "
                f"use 1 to {model.layers} stages"
            )
        roofline = Roofline(
            model, self.device, split, weight_bytes=self.weight_bytes, kv_bytes=self.kv_bytes
        )
        object.__setattr__(self, "_roofline", roofline)
        object.__setattr__(self, "_share", split.stage_share(model.layers))
        if self.kv_tokens < LEAST_KV_TOKENS:
            raise UsageError(self._too_large())

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
        """Tokens whose KV fits beside the weights; at most 0 if these do not fit.

        The longest stage decides.
        """
        split = self.parallelism
        stage_bytes = self.device.memory_bytes * split.tensor * (1 - ACTIVATION_SHARE)
        copies = kv_copies(self.model, split.tensor)
        return int(
            (stage_bytes / self._share - self.weights_bytes) / (self.kv_bytes_per_token * copies)
        )

    def _too_large(self) -> str:
        split, device = self.parallelism, self.device
        return (
            f"{self.model.name} does not fit {split.text} on {device.name}: its weights take "
            f"{self.weights_bytes / 1e9:.0f} GB of {split.devices} × "
            f"{device.memory_bytes / 1e9:.0f} GB, and there must be room for {LEAST_KV_TOKENS} "
            f"tokens of KV: use more devices, or fewer bits"
        )

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    def seconds(self, plan: StepPlan) -> Seconds:
        """See `core.costs.StepTime`."""
        work = work_of(plan)
        if self.parallelism.pipeline > 1 and has_decodes(plan):
            return self._round_s(work)
        return self.seconds_of(work)

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        """See `core.costs.StepTime`. By the trapezoid of the first and the last pass."""
        first = work_of(plan)
        tokens, sampled, chunks, context, attention = first
        more = chunks * (passes - 1)
        last = StepWork(tokens, sampled, chunks, context + more, attention + more)
        return passes * (self._round_s(first) + self._round_s(last)) / 2

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        """See `core.costs.PhaseTime`. Chunks follow each other through a pipeline."""
        chunks = self._chunks(tokens, start)
        return sum(map(self.seconds_of, chunks)) + max(map(self._lag_s, chunks), default=0.0)

    def occupied_s(self, tokens: int, start: int = 0) -> Seconds:
        """How long such a prompt keeps the next from beginning: less than `prefill_s` in stages."""
        return sum(map(self.seconds_of, self._chunks(tokens, start)))

    def _chunks(self, tokens: int, start: int) -> list[StepWork]:
        end, size = start + tokens, self.step_tokens
        return [
            StepWork().plus(at, min(size, end - at), sampled=at + size >= end)
            for at in range(start, end, size)
        ]

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        """See `core.costs.PhaseTime`."""
        read = context_tokens + sequences
        if sequences and self.parallelism.pipeline == 1:  # a router asks for each of its options
            line = self._roofline
            return line.layers_s(sequences, read, read) * self._share + line.head_s(sequences)
        return self._round_s(StepWork(sequences, sequences, sequences, read, read))

    def seconds_of(self, work: StepWork) -> Seconds:
        """How long a step of prompts occupies the slowest stage of the pipeline; 0 for none."""
        if not work.chunks:
            return 0.0
        line = self._roofline
        layers_s = line.layers_s(work.tokens, work.context, work.attention)
        return layers_s * self._share + line.head_s(work.sampled)

    def lag_s(self, plan: StepPlan) -> Seconds:
        """How much later a step's tokens are there than the next step may begin."""
        if self.parallelism.pipeline == 1 or has_decodes(plan):
            return 0.0
        return self._lag_s(work_of(plan))

    def _lag_s(self, work: StepWork) -> Seconds:
        """The stages but the slowest, and the hops between all."""
        stages = self.parallelism.pipeline
        if stages == 1 or not work.chunks:
            return 0.0
        line = self._roofline
        layers_s = line.layers_s(work.tokens, work.context, work.attention)
        return layers_s * (1 - self._share) + (stages - 1) * line.hop_s(work.tokens)

    def _round_s(self, work: StepWork) -> Seconds:
        """How long until each sequence of a step has its next token.

        Of the batches that a step is spread over, each goes through all stages, and its tokens back
        to the first; no stage works at two of them at a time.
        """
        stages = self.parallelism.pipeline
        if stages == 1 or not work.chunks:
            return self.seconds_of(work)
        line, parts = self._roofline, min(stages, work.chunks)
        tokens = work.tokens / parts
        layers_s = line.layers_s(tokens, work.context / parts, work.attention / parts)
        head_s = line.head_s(work.sampled / parts)
        alone_s = layers_s + head_s + stages * line.hop_s(tokens)
        return max(alone_s, parts * (layers_s * self._share + head_s))


def _check_numbers(made: Deployment) -> None:
    for name in ("weight_bytes", "kv_bytes"):
        if not 0 < getattr(made, name) <= 8:
            raise UsageError(
                f"{name}: is {getattr(made, name)}, but a number takes up to 8 bytes: "
                "use 2 for 16 bits, 1 for 8, 0.5 for 4"
            )
    if made.step_tokens < 1:
        raise UsageError(f"step_tokens: is {made.step_tokens}, but must be at least 1")


def _divisors(number: int) -> str:
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)
