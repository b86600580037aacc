"""What faults cost in goodput: the drill's answers, as `core.faults.resilience` judges them."""

from collections.abc import Sequence

from antiphon.bench import Answer
from antiphon.core.faults import (
    CallOutcome,
    Resilience,
    attained_before,
    attainment,
    resilience,
)
from antiphon.types import Seconds, Slo

from .plan import Load
from .report import Injected

_LEAST_WINDOW_S: Seconds = 1.0
_CALLS_IN_WINDOW = 10


def outcomes(answers: Sequence[Answer], slo: Slo, began_at: Seconds) -> tuple[CallOutcome, ...]:
    """Each answer's outcome, in order of due times, which count from `began_at`."""
    found = [
        CallOutcome(answer.due_at - began_at, answer.ended_at - began_at, _met(answer, slo))
        for answer in answers
    ]
    return tuple(sorted(found, key=lambda call: (call.due_at_s, call.ended_at_s)))


def cost_of_faults(
    calls: Sequence[CallOutcome],
    faults: Sequence[Injected],
    load: Load,
    undisturbed: Sequence[CallOutcome],
) -> Resilience | None:
    """None: no fault happened.

    The reference is the undisturbed load if there was one, else what came before the first fault,
    else, if that is too little, that every call is within its targets.
    """
    if not faults:
        return None
    reference = attainment(undisturbed) or attained_before(calls, faults[0].at_s) or 1.0
    return resilience(
        calls,
        [fault.at_s for fault in faults],
        reference=reference,
        window_s=window_s(load),
    )


def window_s(load: Load) -> Seconds:
    """So long that there are some calls in it."""
    return max(_LEAST_WINDOW_S, _CALLS_IN_WINDOW / load.rate_per_s)


def _met(answer: Answer, slo: Slo) -> bool:
    if not answer.ok or not answer.token_at:
        return False
    first_s = answer.token_at[0] - answer.due_at
    more = answer.completion_tokens - 1
    per_token_s = (answer.token_at[-1] - answer.token_at[0]) / more if more > 0 else 0.0
    return first_s <= slo.ttft_s and per_token_s <= slo.tpot_s
