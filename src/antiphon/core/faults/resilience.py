"""How well a service bore faults: what they cost in goodput, and how soon it was as before.

attainment 1 ┤━━━━━━━━┓             ┏━━━━━      reference ─ ─ ─
             │        ┃▒▒▒▒▒▒▒▒▒▒▒┏━┛
             │        ┗━━━━━━━━━━━┛             ▒ the area is what was lost, in calls
             └────────┴───────────┴───► time
                    fault      recovered: from here on within 5 % of the reference
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from antiphon.types import Seconds

RECOVERED = 0.95
"""Of the reference: who is there again is recovered."""
LEAST_CALLS = 10
"""With fewer calls before the first fault these are no reference."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """One call under load. `met`: answered within its targets. Times from the load's begin."""

    due_at_s: Seconds
    ended_at_s: Seconds
    met: bool


@dataclass(frozen=True, slots=True)
class Impact:
    """What one fault cost, until the next one or the end of the load.

    `lost_calls`: fewer calls within their targets than by the reference. `recovery_s`: from the
    fault to the first call from which on every window is within 5 % of the reference; 0: no window
    was worse. None: not before the next fault, or no call came at all.
    """

    at_s: Seconds
    lost_calls: float
    recovery_s: Seconds | None


@dataclass(frozen=True, slots=True)
class Resilience:
    """`reference`: attainment without faults, 0 … 1. `lost_calls`: the area between the reference
    and what was attained, in calls; `lost_share`: of what would have been attained."""

    reference: float
    lost_calls: float
    lost_share: float
    impacts: tuple[Impact, ...]


def attainment(calls: Sequence[CallOutcome]) -> float | None:
    """The share of calls within their targets; None: there are none."""
    return sum(call.met for call in calls) / len(calls) if calls else None


def attained_before(calls: Sequence[CallOutcome], at_s: Seconds) -> float | None:
    """Attainment of the calls that were over by then; None: they are too few to say."""
    over = [call for call in calls if call.ended_at_s <= at_s]
    return attainment(over) if len(over) >= LEAST_CALLS else None


def resilience(
    calls: Sequence[CallOutcome],
    faults_at_s: Sequence[Seconds],
    *,
    reference: float,
    window_s: Seconds,
) -> Resilience:
    """What faults at these times cost. `window_s`: attainment at a moment is that of the calls due
    within so much after it. Pure; the order of `calls` and faults does not matter."""
    ordered = sorted(calls, key=lambda call: (call.due_at_s, call.ended_at_s))
    times = sorted(faults_at_s)
    expected = reference * len(ordered)
    met: list[list[CallOutcome]] = [[] for _ in times]
    for call in ordered:
        if (fault := _met(call, times)) is not None:
            met[fault].append(call)
    lost = _lost([call for its in met for call in its], reference)
    impacts = tuple(
        Impact(
            at, _lost(its, reference), _recovery_s(_due(ordered, at, end), at, reference, window_s)
        )
        for at, end, its in zip(times, [*times[1:], float("inf")], met, strict=False)
    )
    return Resilience(
        reference=reference,
        lost_calls=lost,
        lost_share=lost / expected if expected else 0.0,
        impacts=impacts,
    )


def windowed(calls: Sequence[CallOutcome], window_s: Seconds) -> Sequence[tuple[Seconds, float]]:
    """(due time, attainment of the calls due from then on for `window_s`), for each call in order.

    `calls` are in order of their due times; those that are due at once have the same window.
    """
    good = [0, *accumulate(call.met for call in calls)]
    curve: list[tuple[Seconds, float]] = []
    begin = end = 0
    for place, call in enumerate(calls):
        if call.due_at_s > calls[begin].due_at_s:
            begin = place
        while end < len(calls) and calls[end].due_at_s < call.due_at_s + window_s:
            end += 1
        last = max(end, place + 1)
        curve.append((call.due_at_s, (good[last] - good[begin]) / (last - begin)))
    return curve


def _lost(calls: Sequence[CallOutcome], reference: float) -> float:
    return max(reference * len(calls) - sum(call.met for call in calls), 0.0)


def _met(call: CallOutcome, times: Sequence[Seconds]) -> int | None:
    """The fault that answers for a call: the first one while it was under way, else the last one
    before it. So each call is lost at most once."""
    after = bisect_right(times, call.due_at_s)
    if after < len(times) and call.ended_at_s > times[after]:
        return after
    return after - 1 if after else None


def _due(ordered: Sequence[CallOutcome], at: Seconds, end: Seconds) -> Sequence[CallOutcome]:
    """What recovery is seen by: calls that were under way at the fault are none of it."""
    return [call for call in ordered if at <= call.due_at_s < end]


def _recovery_s(
    after: Sequence[CallOutcome], at: Seconds, reference: float, window_s: Seconds
) -> Seconds | None:
    """From the last call backwards. A window that the end cuts short says too little alone."""
    if not after:
        return None
    last_s = max(after[-1].due_at_s - window_s, after[0].due_at_s)
    recovered: Seconds | None = None
    for due_at_s, share in reversed(windowed(after, window_s)):
        if due_at_s > last_s:
            continue
        if share < RECOVERED * reference:
            return None if recovered is None else recovered - at
        recovered = due_at_s
    return 0.0
