"""One run of a scenario in virtual time, told as a run against a server is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from antiphon import __version__
from antiphon.core.faults import (
    ACTION_NAMES,
    GATEWAY,
    CallOutcome,
    Impact,
    attained_before,
    resilience,
)
from antiphon.report import summarise
from antiphon.runs import LoadPlan, LoadTally, Measured, meets
from antiphon.types import CallError, CallRecord, LoadRun, Seconds

from .fleet import Fleet, FleetSpec
from .fleet_drains import FleetDrains
from .scenario import Scenario
from .scenario_fleet import fleet_spec, planned_sessions
from .scheduled_faults import PlannedFault, PlannedFaults, scheduled
from .store_plan import Reach
from .users import UserRules

_WINDOW_CALLS, _LEAST_WINDOW_S = 20, 1.0
_MOST_TOLD = 8
"""Faults that are told of one by one."""

Looker: TypeAlias = Callable[[Seconds, str], None]
"""Hears how many of a run's seconds are over, and how it stands."""


class Stopped(Exception):
    """Raised by a `Looker` who wants a run to end. No error: what is known by then is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run, while it goes on."""

    fleet: Fleet
    tally: LoadTally
    records: list[CallRecord]
    look: Looker
    faults: PlannedFaults
    drains: FleetDrains

    def tell(self, now: Seconds) -> None:
        """Mutates the tally: calls that were sent since are sent now."""
        never_sent = sum(one.error is CallError.ABANDONED for one in self.records)
        self.tally.sent_by(self.fleet.users.begun - never_sent, now)
        self.look(now, self.tally.line(now))


def simulate(
    scenario: Scenario,
    plan: LoadPlan,
    *,
    command: str = "",
    look: Looker = lambda _now, _line: None,
) -> Measured:
    """Run `plan` on the scenario's fleet. Equal arguments give equal results.

    `look` hears of it every few virtual seconds; if it raises `Stopped`, the calls that had ended
    by then are what came of it.
    """
    scenario = replace(scenario, duration_s=plan.duration_s)
    spec = fleet_spec(scenario)
    faults = scheduled(scenario, plan.seed, after_s=4 * scenario.config.cluster.heartbeat_s)
    spec = replace(spec, faults=faults.plan)
    run = run_of(scenario, spec, plan, command=command)
    going = _begun(scenario, spec, plan, run, faults, look)
    stopped_at: Seconds | None = None
    try:
        going.fleet.run(on_progress=going.tell)
    except Stopped:
        stopped_at = going.fleet.users.now
        run = _broken_off(run, stopped_at)
    records = tuple(going.records)
    run = replace(run, notes=(*run.notes, *_notes(scenario, going, run)))
    return Measured(
        run=run, records=records, summary=summarise(run, records), whole=stopped_at is None
    )


def run_of(scenario: Scenario, spec: FleetSpec, plan: LoadPlan, *, command: str = "") -> LoadRun:
    """A run as it is known when it begins."""
    run = plan.begun(fleet_text(spec), scenario.model, version=__version__, command=command)
    copies = scenario.users.copies
    times = f"{run.workload}, {copies} times" if copies > 1 else run.workload
    return replace(run, workload=times, devices=spec.devices)


def fleet_text(spec: FleetSpec) -> str:
    """Such as "2 prefill on 8 devices, 2 decode on 8 devices", and its stores."""
    pools = ", ".join(
        f"{pool.workers} {pool.name} on {pool.workers * pool.devices} devices"
        for pool in spec.pools
    )
    return "; ".join(filter(None, (pools, store_text(spec))))


_USE = {Reach.FLEET: "one pool", Reach.POOL: "pooled stores", Reach.HOST: "each for its own"}


def store_text(spec: FleetSpec) -> str:
    """Such as "KV in 512 GB of each of 4 hosts, one pool"; empty: there is none."""
    store = spec.store
    if store is None or not store.host_bytes:
        return ""
    hosts = store.hosts(sum(pool.workers for pool in spec.pools))
    ssd = f" and {store.ssd_bytes / 1e9:g} GB of SSD" if store.ssd_bytes else ""
    use = _USE[store.reach]
    where = f"each of {hosts} hosts" if hosts > 1 else "one host"
    return f"KV in {store.host_bytes / 1e9:g} GB{ssd} of {where}, {use}"


def _begun(
    scenario: Scenario,
    spec: FleetSpec,
    plan: LoadPlan,
    run: LoadRun,
    faults: PlannedFaults,
    look: Looker,
) -> _Run:
    users = scenario.users
    tally = LoadTally(meets(run), duration_s=run.duration_s, warmup_s=run.warmup_s)
    records: list[CallRecord] = []

    def observe(record: CallRecord) -> None:
        records.append(record)
        tally.ended(record)

    rules = UserRules(
        slos=tuple(plan.slos),
        max_tokens=users.max_tokens,
        front_s=users.front_s,
        patience_s=users.patience_s,
        all_stamps=users.all_stamps,
    )
    fleet = Fleet(spec, planned_sessions(plan, users.copies), rules, observe)
    drains = FleetDrains(fleet, faults.drains)
    return _Run(fleet=fleet, tally=tally, records=records, look=look, faults=faults, drains=drains)


def _broken_off(run: LoadRun, at_s: Seconds) -> LoadRun:
    note = (
        f"Interrupted after {at_s:.1f} of {run.duration_s:g} s: calls that were open or not due "
        "yet are left out."
    )
    return replace(run, duration_s=min(run.duration_s, at_s), notes=(*run.notes, note))


# ── what a reader should know ────────────────────────────────────────────────────────────────


def _notes(scenario: Scenario, going: _Run, run: LoadRun) -> Sequence[str]:
    notes: list[str] = []
    if not scenario.users.all_stamps:
        notes.append(
            "Only the first and the last token of each answer have their times: the time between "
            "tokens is told for whole answers."
        )
    return [*notes, *_fault_notes(going, run)]


def _fault_notes(going: _Run, run: LoadRun) -> Sequence[str]:
    """What each fault was, and what it cost."""
    faults = [one for one in going.faults.faults if (one.at_s or 0.0) <= run.duration_s]
    if not faults:
        return []
    impacts = _impacts(going, run)
    lines = [_fault_line(one, impacts) for one in faults[:_MOST_TOLD]]
    if len(faults) > _MOST_TOLD:
        lines.append(f"And {len(faults) - _MOST_TOLD} more faults.")
    return lines


def _impacts(going: _Run, run: LoadRun) -> dict[Seconds, Impact]:
    """By the time of each fault that happened."""
    offset_s = going.fleet.join_s
    times = {one.at - offset_s for one in going.fleet.cluster.faults.injected}
    times |= {drain.at_s for drain in going.faults.drains if drain.at_s <= run.duration_s}
    if not times:
        return {}
    met = meets(run)
    calls = [CallOutcome(one.due_at_s, one.ended_at_s, met(one)) for one in going.records]
    pace = len(calls) / max(run.duration_s, 1.0)
    found = resilience(
        calls,
        sorted(times),
        reference=attained_before(calls, min(times)) or 1.0,
        window_s=max(_LEAST_WINDOW_S, _WINDOW_CALLS / max(pace, 1e-9)),
    )
    return {round(impact.at_s, 6): impact for impact in found.impacts}


def _fault_line(planned: PlannedFault, impacts: dict[Seconds, Impact]) -> str:
    name = ACTION_NAMES[type(planned.fault.action)]
    target = "the gateway" if planned.target == GATEWAY else planned.target
    if target is None:
        return f"Fault {planned.fault.entry}, {name}: nobody could be hit."
    if planned.at_s is None:
        return f"Fault {planned.fault.entry}: {name} {target} when its event comes."
    said = f"Fault {planned.fault.entry}: {name} {target} at {planned.at_s:.1f} s"
    impact = impacts.get(round(planned.at_s, 6))
    if impact is None:
        return f"{said}; it had no effect: it was not there to be hit."
    lost = f"{impact.lost_calls:.1f} calls within targets were lost to it"
    match impact.recovery_s:
        case None:
            then = "goodput was not as before until the next fault or the end"
        case 0.0:
            then = "goodput of those that came then was as before"
        case recovery_s:
            then = f"goodput was as before after {recovery_s:.1f} s"
    return f"{said}; {lost}, {then}."
