"""What faults did to a run, as numbers; and the same in sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.types import Seconds

from . import wording

_MOST_TOLD = 8
"""Faults that are told of one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCost:
    """One fault of a plan, and what came of it.

    `entry`: of the plan, from 1. `target` None: nobody could be hit. `at_s` None: an event was to
    set it off. `happened` None: that is not known. `lost_calls`: fewer calls within their targets
    than without it, `recovery_s`: until as many were again (`core.faults.Impact`); None: it did not
    happen, or goodput was not as before until the next fault or the end.
    """

    entry: int
    kind: str
    target: str | None
    at_s: Seconds | None
    happened: bool | None
    lost_calls: float | None
    recovery_s: Seconds | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCosts:
    """All faults of a run, in order of time.

    `reference`: the share of calls within their targets before the first one; None: none happened.
    `lost_calls` of all faults, `lost_share`: of what would have been attained. `failed`: calls of
    the whole run that failed, its warm-up included. `tried_again`: calls that took more than one
    attempt, `wasted_tokens`: what later attempts computed again.
    """

    faults: tuple[FaultCost, ...]
    reference: float | None
    lost_calls: float
    lost_share: float
    failed: int
    tried_again: int
    wasted_tokens: int


def fault_lines(costs: FaultCosts) -> Sequence[str]:
    """A sentence on each fault, and one on all."""
    lines = [_line(one) for one in costs.faults[:_MOST_TOLD]]
    if len(costs.faults) > _MOST_TOLD:
        lines.append(f"And {wording.plural(len(costs.faults) - _MOST_TOLD, 'more fault')}.")
    if costs.reference is not None:
        lines.append(
            f"All faults: {costs.lost_calls:.1f} calls within targets lost "
            f"({wording.share(costs.lost_share)}) against {wording.share(costs.reference)} before; "
            f"failed: {wording.plural(costs.failed, 'call')}; "
            f"tried again: {wording.plural(costs.tried_again, 'call')}; "
            f"computed again for them: {wording.plural(costs.wasted_tokens, 'token')}."
        )
    return lines


def _line(fault: FaultCost) -> str:
    if fault.target is None:
        return f"Fault {fault.entry}, {fault.kind}: nobody could be hit."
    target = "the gateway" if fault.target == "gateway" else fault.target
    said = f"Fault {fault.entry}: {fault.kind} {target}"
    if fault.at_s is None:
        return f"{said} when its event comes."
    said += f" at {fault.at_s:.1f} s"
    if not fault.happened or fault.lost_calls is None:
        return f"{said}; it had no effect: it was not there to be hit."
    lost = f"{fault.lost_calls:.1f} calls within targets were lost to it"
    match fault.recovery_s:
        case None:
            then = "goodput was not as before until the next fault or the end"
        case 0.0:
            then = "goodput of those that came then was as before"
        case recovery_s:
            then = f"goodput was as before after {recovery_s:.1f} s"
    return f"{said}; {lost}, {then}."
