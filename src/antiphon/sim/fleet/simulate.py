"""One run of a scenario in virtual time, told as a run against a server is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from antiphon import __version__
from antiphon.core.number_text import number_text
from antiphon.report import fault_lines, summarise
from antiphon.report.wording import plural
from antiphon.runs import LoadPlan, LoadTally, Measured, meets
from antiphon.types import CallError, CallRecord, LoadRun, Seconds

from .cost_of_faults import cost_of_faults
from .fleet import Fleet, FleetSpec
from .fleet_drains import FleetDrains
from .scenario import Scenario
from .scenario_fleet import fleet_spec, planned_sessions
from .scheduled_faults import PlannedFaults, scheduled
from .store_plan import Reach
from .users import UserRules

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
    costs = cost_of_faults(going.fleet, faults, run, records)
    told = () if costs is None else fault_lines(costs)
    run = replace(run, notes=(*run.notes, *_notes(scenario), *told))
    summary = replace(summarise(run, records), faults=costs)
    return Measured(run=run, records=records, summary=summary, whole=stopped_at is None)


def run_of(scenario: Scenario, spec: FleetSpec, plan: LoadPlan, *, command: str = "") -> LoadRun:
    """A run as it is known when it begins."""
    run = plan.begun(fleet_text(spec), scenario.model, version=__version__, command=command)
    copies = scenario.users.copies
    times = f"{run.workload}, {copies} times" if copies > 1 else run.workload
    return replace(run, workload=times, devices=spec.devices)


def fleet_text(spec: FleetSpec) -> str:
    """Such as "2 prefill on 8 devices, 2 decode on 8 devices", and its stores."""
    pools = ", ".join(
        f"{pool.workers} {pool.name} on {plural(pool.workers * pool.devices, 'device')}"
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
    ssd = f" and {number_text(store.ssd_bytes / 1e9)} GB of SSD" if store.ssd_bytes else ""
    use = _USE[store.reach]
    where = f"each of {hosts} hosts" if hosts > 1 else "one host"
    return f"KV in {number_text(store.host_bytes / 1e9)} GB{ssd} of {where}, {use}"


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
    return _Run(fleet=fleet, tally=tally, records=records, look=look, drains=drains)


def _broken_off(run: LoadRun, at_s: Seconds) -> LoadRun:
    note = (
        f"Interrupted after {at_s:.1f} of {number_text(run.duration_s)} s: calls that were open or "
        "not due yet are left out."
    )
    return replace(run, duration_s=min(run.duration_s, at_s), notes=(*run.notes, note))


# ── what a reader should know ────────────────────────────────────────────────────────────────


def _notes(scenario: Scenario) -> Sequence[str]:
    if scenario.users.all_stamps:
        return ()
    return (
        "Only the first and the last token of each answer have their times, so the time between "
        "two tokens (ITL) is not known.",
    )
