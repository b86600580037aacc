"""Step times that others have measured and published: DistServe's of OPT on A100.

    prefill = A + B·Σ length + C·Σ length²        decode = A + B·Σ context + C·batch

in milliseconds, decode in two regimes of the batch size (Zhong et al. 2024, and the coefficients
that the paper's simulator ships). A step that does both is not measured there: here it has the
larger of both constants and all other terms, an assumption that favours neither side.
"""

from dataclasses import dataclass
from difflib import get_close_matches

from antiphon.errors import UsageError
from antiphon.types import Seconds, StepPlan

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

    def seconds(self, plan: StepPlan) -> Seconds:
        """See `core.costs.StepTime`: how long a step occupies each stage."""
        tokens = squares = batch = context = 0
        for chunk in plan.chunks:
            length = len(chunk.tokens)
            if length == 1 and chunk.start:
                batch += 1
                context += chunk.start + 1
            else:
                tokens += length
                squares += (chunk.start + length) ** 2 - chunk.start**2
        return self._seconds(tokens, squares, batch, context)

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        """See `core.costs.StepTime`."""
        batch = len(plan.chunks)
        context = sum(chunk.start + 1 for chunk in plan.chunks)
        first = self._seconds(0, 0, batch, context)
        last = self._seconds(0, 0, batch, context + batch * (passes - 1))
        return passes * (first + last) / 2

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        """See `core.costs.PhaseTime`: in one step."""
        if tokens <= 0:
            return 0.0
        stage_s = self._seconds(tokens, (start + tokens) ** 2 - start**2, 0, 0)
        return stage_s * self.pipeline

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        """See `core.costs.PhaseTime`."""
        if sequences <= 0:
            return 0.0
        return self._seconds(0, 0, sequences, context_tokens + sequences)

    def lag_s(self, plan: StepPlan) -> Seconds:
        """How much later a step's tokens are there than the next step may begin."""
        return (self.pipeline - 1) * self.seconds(plan)

    def _seconds(self, tokens: int, squares: int, batch: int, context: int) -> Seconds:
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


def published_times(model: str, tensor: int) -> PublishedStepTime:
    """DistServe's of that model. Raises `UsageError` that lists what there is."""
    found = DISTSERVE.get((model, tensor))
    if found is not None:
        return found
    near = get_close_matches(model, [name for name, _ in DISTSERVE], n=1)
    hint = f": did you mean {near[0]}?" if near else ""
    known = ", ".join(f"{name} TP{devices}" for name, devices in DISTSERVE)
    raise UsageError(f"no times of {model} on {tensor} A100 are published{hint} Known are {known}")
