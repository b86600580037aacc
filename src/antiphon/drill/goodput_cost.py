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
from antiphon.core.goodput import judge
from antiphon.types import CallError, CallRecord, Seconds, Slo

from .plan import Load
from .report import Injected

_LEAST_WINDOW_S: Seconds = 1.0
_CALLS_IN_WINDOW = 10


def outcomes(answers: Sequence[Answer], slo: Slo, began_at: Seconds) -> tuple[CallOutcome, ...]:
    """Each answer's outcome, in order of due times, which count from `began_at`."""
    found = [
        CallOutcome(
            answer.due_at - began_at, answer.ended_at - began_at, judge(_record(answer), slo).met
        )
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


def _record(answer: Answer) -> CallRecord:
    """The answer as goodput looks at it. One that was not streamed has all its text at its end."""
    return CallRecord(
        number=answer.number,
        session=answer.number,
        turn=0,
        due_at_s=answer.due_at,
        sent_at_s=answer.sent_at,
        token_at_s=answer.token_at,
        ended_at_s=answer.ended_at,
        output_tokens=answer.completion_tokens,
        status=answer.status,
        error=None if answer.ok else CallError.CUT_SHORT,
    )
