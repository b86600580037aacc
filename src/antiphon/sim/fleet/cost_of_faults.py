"""What the faults of a run in virtual time cost."""

from collections.abc import Sequence

from antiphon.core.faults import (
    ACTION_NAMES,
    CallOutcome,
    Impact,
    Resilience,
    attained_before,
    resilience,
)
from antiphon.report import FaultCost, FaultCosts
from antiphon.runs import meets
from antiphon.types import CallRecord, LoadRun, Seconds

from .fleet import Fleet
from .scheduled_faults import PlannedFault, PlannedFaults

_WINDOW_CALLS, _LEAST_WINDOW_S = 20, 1.0


def cost_of_faults(
    fleet: Fleet, planned: PlannedFaults, run: LoadRun, records: Sequence[CallRecord]
) -> FaultCosts | None:
    """What came of each fault that was due in the run. None: there was none."""
    faults = [one for one in planned.faults if (one.at_s or 0.0) <= run.duration_s]
    if not faults:
        return None
    found = _resilience(fleet, planned, run, records)
    impacts = {} if found is None else {round(one.at_s, 6): one for one in found.impacts}
    return FaultCosts(
        faults=tuple(_cost(one, impacts) for one in faults),
        reference=None if found is None else found.reference,
        lost_calls=0.0 if found is None else found.lost_calls,
        lost_share=0.0 if found is None else found.lost_share,
        failed=sum(one.error is not None for one in records),
        tried_again=fleet.users.tried_again,
        wasted_tokens=fleet.users.wasted_tokens,
    )


def _resilience(
    fleet: Fleet, planned: PlannedFaults, run: LoadRun, records: Sequence[CallRecord]
) -> Resilience | None:
    """None: no fault happened."""
    times = {one.at - fleet.join_s for one in fleet.cluster.faults.injected}
    times |= {drain.at_s for drain in planned.drains if drain.at_s <= run.duration_s}
    if not times:
        return None
    met = meets(run)
    calls = [CallOutcome(one.due_at_s, one.ended_at_s, met(one)) for one in records]
    pace = len(calls) / max(run.duration_s, 1.0)
    return resilience(
        calls,
        sorted(times),
        reference=attained_before(calls, min(times)) or 1.0,
        window_s=max(_LEAST_WINDOW_S, _WINDOW_CALLS / max(pace, 1e-9)),
    )


def _cost(planned: PlannedFault, impacts: dict[Seconds, Impact]) -> FaultCost:
    at_s = planned.at_s
    impact = None if at_s is None or planned.target is None else impacts.get(round(at_s, 6))
    by_event = at_s is None and planned.target is not None
    return FaultCost(
        entry=planned.fault.entry,
        kind=ACTION_NAMES[type(planned.fault.action)],
        target=planned.target,
        at_s=at_s,
        happened=None if by_event else impact is not None,
        lost_calls=None if impact is None else impact.lost_calls,
        recovery_s=None if impact is None else impact.recovery_s,
    )
