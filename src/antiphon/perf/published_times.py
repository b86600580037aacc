"""Step times that others have measured and published: DistServe's of OPT on A100.

    prefill = A + B·Σ length + C·Σ length²        decode = A + B·Σ context + C·batch

in milliseconds, decode in two regimes of the batch size (Zhong et al. 2024, and the coefficients
that the paper's simulator ships). A step that does both is not measured there: here it has the
larger of both constants and all other terms, an assumption that favours neither side.
"""

from dataclasses import dataclass, replace
from difflib import get_close_matches

from antiphon.errors import UsageError
from antiphon.types import Seconds, StepPlan

from .step_work import has_decodes

_MS = 1e-3
_LARGE_BATCH = 95
"""From here on the second regime of decode holds."""
_PIPELINE_S: Seconds = 1e-3
"""What each stage adds to a step of a pipeline."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A in milliseconds, B a token, C a squared token or a sequence of the batch."""

    a: float
    b: float
    c: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStepTime:
    """Implements `core.costs.StepTime` and `PhaseTime` for a model on `tensor × pipeline` devices.

    `kv_tokens`: how many tokens' KV fits, as published; None: unknown.
    """

    name: str
    tensor: int
    prefill: Coefficients
    small: Coefficients
    large: Coefficients
    kv_tokens: int | None = None
    pipeline: int = 1

    def __post_init__(self) -> None:
        if self.pipeline < 1:
            raise UsageError(f"pipeline: is {self.pipeline}, but must be at least 1 stage")

    def seconds(self, plan: StepPlan) -> Seconds:
        """See `core.costs.StepTime`: how long a step of prompts occupies each stage.

        One with decodes takes until each sequence has its next token, as in `Deployment`.
        """
        tokens = squares = batch = context = 0
        for chunk in plan.chunks:
            length = len(chunk.tokens)
            if length == 1 and chunk.start:
                batch += 1
                context += chunk.start + 1
            else:
                tokens += length
                squares += (chunk.start + length) ** 2 - chunk.start**2
        if batch:
            return self._round_s(len(plan.chunks), (tokens, squares, batch, context))
        return self._stage_s(tokens, squares)

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        """See `core.costs.StepTime`."""
        batch = len(plan.chunks)
        context = sum(chunk.start + 1 for chunk in plan.chunks)
        first = self._round_s(batch, (0, 0, batch, context))
        last = self._round_s(batch, (0, 0, batch, context + batch * (passes - 1)))
        return passes * (first + last) / 2

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        """See `core.costs.PhaseTime`: in one step."""
        return self.occupied_s(tokens, start) * self.pipeline

    def occupied_s(self, tokens: int, start: int = 0) -> Seconds:
        """How long such a prompt keeps the next from beginning: less than `prefill_s` in stages."""
        if tokens <= 0:
            return 0.0
        return self._stage_s(tokens, (start + tokens) ** 2 - start**2)

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        """See `core.costs.PhaseTime`."""
        if sequences <= 0:
            return 0.0
        return self._round_s(sequences, (0, 0, sequences, context_tokens + sequences))

    def lag_s(self, plan: StepPlan) -> Seconds:
        """How much later a step's tokens are there than the next step may begin."""
        if self.pipeline == 1 or has_decodes(plan):
            return 0.0
        return (self.pipeline - 1) * self.seconds(plan)

    def _round_s(self, chunks: int, work: tuple[int, int, int, int]) -> Seconds:
        """Every stage once for each of the batches that a step is spread over."""
        parts = min(self.pipeline, chunks)
        tokens, squares, batch, context = (count / parts for count in work)
        return self.pipeline * self._stage_s(tokens, squares, batch, context)

    def _stage_s(
        self, tokens: float, squares: float, batch: float = 0, context: float = 0
    ) -> Seconds:
        if not tokens and not batch:
            return 0.0
        ms = constant = 0.0
        if tokens:
            one = self.prefill
            constant, ms = one.a, one.b * tokens + one.c * squares
        if batch:
            one = self.small if batch < _LARGE_BATCH else self.large
            constant, ms = max(constant, one.a), ms + one.b * context + one.c * batch
        hops_s = _PIPELINE_S * (self.pipeline > 1)
        return (constant + ms) * _MS / self.pipeline + hops_s


def _distserve(
    model: str,
    tensor: int,
    prefill: tuple[float, float, float],
    small: tuple[float, float, float],
    large: tuple[float, float, float],
    kv_tokens: int | None,
) -> PublishedStepTime:
    return PublishedStepTime(
        name=f"{model} on a100 TP{tensor}",
        tensor=tensor,
        prefill=Coefficients(*prefill),
        small=Coefficients(*small),
        large=Coefficients(*large),
        kv_tokens=kv_tokens,
    )


DISTSERVE: dict[tuple[str, int], PublishedStepTime] = {
    ("opt-13b", 1): _distserve(
        "opt-13b",
        1,
        (18.10, 0.1019, 7.12e-6),
        (19.93, 6.27e-4, 0.0385),
        (7.17, 5.80e-4, 0.158),
        66_144,
    ),
    ("opt-13b", 2): _distserve(
        "opt-13b",
        2,
        (14.74, 0.0686, 2.45e-6),
        (13.29, 3.41e-4, 0.0630),
        (10.64, 3.12e-4, 0.0856),
        None,
    ),
    ("opt-13b", 4): _distserve(
        "opt-13b",
        4,
        (12.06, 0.0381, 5.23e-7),
        (10.26, 1.88e-4, 0.0327),
        (10.48, 1.71e-4, 0.0457),
        None,
    ),
    ("opt-66b", 2): _distserve(
        "opt-66b",
        2,
        (43.06, 0.2742, 2.25e-5),
        (48.29, 9.42e-4, 0.1276),
        (28.73, 4.74e-4, 0.2962),
        11_600,
    ),
}
"""By model and tensor-parallel devices."""


def published_times(model: str, tensor: int, pipeline: int = 1) -> PublishedStepTime:
    """DistServe's of that model. Raises `UsageError` that lists what there is.

    With several stages its simulator divides the times of one; how much KV fits is then unknown.
    """
    found = DISTSERVE.get((model, tensor))
    if found is not None:
        if pipeline == 1:
            return found
        name = f"{found.name} PP{pipeline}"
        return replace(found, name=name, pipeline=pipeline, kv_tokens=None)
    near = get_close_matches(model, [name for name, _ in DISTSERVE], n=1)
    hint = f": did you mean {near[0]}?" if near and near[0] != model else "."
    known = ", ".join(f"{name} TP{devices}" for name, devices in DISTSERVE)
    raise UsageError(
        f"no times of {model} TP{tensor} on A100 are published{hint} Known are {known}"
    )
