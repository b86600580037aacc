"""A schedule of faults, as far as a fleet in virtual time can have them, with their victims chosen.

    [[fault]] ─► expand ─► scheduled: who is hit, in order of time ─┬─► FaultPlan: FaultInjector
                                                                    └─► drains: FleetDrains

Whom a fault on "random" or on a role hits is known beforehand, as is when a worker is back, so that
`--dry-run` tells what a run does.
"""

from dataclasses import dataclass
from typing import TypeAlias

from antiphon.core.faults import (
    ACTION_NAMES,
    GATEWAY,
    STORE,
    AnyWorker,
    At,
    Crash,
    Cut,
    Drain,
    Fault,
    FaultPlan,
    FillDisk,
    LinkFault,
    LoseBlocks,
    Node,
    ProcessFault,
    Restart,
    Resume,
    ScheduledFault,
    Slow,
    Stall,
    StoreFault,
    When,
    can_be_spared,
    check_times,
    expand,
    preference,
    target_text,
)
from antiphon.errors import BugError, UsageError
from antiphon.types import Role, Seconds

from .scenario import Scenario
from .store_plan import StorePlan

DRAIN_S: Seconds = 30.0
"""What a worker that is drained may take for its requests; then they are moved."""
ACTIONS = ("kill", "stop", "resume", "slow", "cut", "drain", "restart", "fill-disk")
"""What a fleet in virtual time can have of what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDrain:
    """A worker is emptied, ended, and started anew so long after it is empty."""

    at_s: Seconds
    worker: Node
    away_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """Who is hit. `target` None: nobody can be, at that time."""

    fault: ScheduledFault
    target: Node | None

    @property
    def at_s(self) -> Seconds | None:
        """None: when an event comes."""
        return self.fault.trigger.seconds if isinstance(self.fault.trigger, At) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFaults:
    """All of a run. `plan`: what the injector does, `drains`: what operators would do."""

    faults: tuple[PlannedFault, ...] = ()
    plan: FaultPlan
    drains: tuple[PlannedDrain, ...] = ()


_Deed: TypeAlias = ProcessFault | LinkFault | PlannedDrain


def scheduled(
    scenario: Scenario, seed: int | None = None, *, after_s: Seconds = 0.0
) -> PlannedFaults:
    """The faults of a run. Its load begins `after_s` after the virtual clock.

    Raises `UsageError` for a fault that a virtual fleet can't have, and for one that finds nobody
    even when all are there.
    """
    seed = scenario.seed if seed is None else seed
    check_times(scenario.faults, scenario.duration_s)
    faults = expand(scenario.faults, scenario.duration_s)
    for fault in faults:
        if why := _impossible(fault, scenario):
            raise UsageError(f"fault {fault.entry} ({ACTION_NAMES[type(fault.action)]}): {why}")
    casting = _Casting(scenario, seed, after_s)
    planned = tuple(casting.cast(fault) for fault in faults)
    return PlannedFaults(
        faults=planned,
        plan=FaultPlan(seed, tuple(casting.injected)),
        drains=tuple(casting.drains),
    )


def _impossible(fault: ScheduledFault, scenario: Scenario) -> str:
    """Why a fleet in virtual time can't have it; empty: it can."""
    workers: dict[Node, Role] = dict(scenario.workers)
    match fault.action:
        case Crash() | Stall() | Resume() | Slow() | Cut() | Drain() | Restart() | FillDisk():
            pass
        case _:
            return f"a fleet in virtual time has none: it can have {', '.join(ACTIONS)}"
    match fault.target:
        case AnyWorker(role):
            named = {name: its for name, its in workers.items() if role in (None, its)}
            if not named:
                return f'target: there is no worker of role "{target_text(fault.target)}"'
            if not any(can_be_spared(name, its, workers) for name, its in named.items()):
                return (
                    "target: no worker can be spared: each is the last that computes prompts, or "
                    "that decodes. Have more workers, or name the one that is to be hit"
                )
        case name if name == STORE:
            return _impossible_for_store(fault, scenario.store)
        case name if name == GATEWAY:
            if isinstance(fault.action, Cut | Drain):
                return "target: name a worker: it is its link to the gateway that is cut"
        case name if name not in workers:
            names = list(workers)
            some = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
            return f'target: there is no worker "{name}": there are {some}'
        case _:
            pass
    if isinstance(fault.trigger, When) and isinstance(fault.action, Drain | Restart | Resume):
        return "after-event: say when with at or every"
    return ""


def _impossible_for_store(fault: ScheduledFault, store: StorePlan | None) -> str:
    if store is None or not store.host_bytes:
        return "target: a fleet in virtual time has no store unless it has a table [store]"
    match fault.action:
        case Crash():
            return ""
        case FillDisk():
            return "" if store.ssd_bytes else "target: its stores have no SSD: give ssd-gigabytes"
        case _:
            return "target: stores in virtual time can have kill and fill-disk"


class _Casting:
    """Chooses whom each fault hits, in order of time, of those who are sound then."""

    def __init__(self, scenario: Scenario, seed: int, after_s: Seconds) -> None:
        self.injected: list[Fault] = []
        self.drains: list[PlannedDrain] = []
        self._roles: dict[Node, Role] = dict(scenario.workers)
        self._seed = seed
        self._after_s = after_s
        self._end_s = scenario.duration_s
        self._start_s = scenario.start_s
        self._gateway_s = scenario.config.cluster.restart_backoff_s
        self._back_at: dict[Node, Seconds] = {}
        self._stalls: dict[Node, int] = {}
        """Who stands still, and where that is in `injected`."""

    def cast(self, fault: ScheduledFault) -> PlannedFault:
        """Mutates: whoever is hit is not hit again before it is back."""
        at_s = fault.trigger.seconds if isinstance(fault.trigger, At) else self._end_s
        if isinstance(fault.action, Resume):
            return PlannedFault(fault=fault, target=self._resume(fault, at_s))
        target = self._victim(fault, at_s)
        if target is not None:
            self._plan(fault, target, at_s)
        return PlannedFault(fault=fault, target=target)

    def _victim(self, fault: ScheduledFault, at_s: Seconds) -> Node | None:
        sound = {
            name: role for name, role in self._roles.items() if self._back_at.get(name, 0.0) <= at_s
        }
        match fault.target:
            case AnyWorker(role):
                fitting = [
                    name
                    for name, its in sound.items()
                    if role in (None, its) and can_be_spared(name, its, sound)
                ]
                return next(iter(preference(self._seed, fault, fitting)), None)
            case name:
                return name if self._back_at.get(name, 0.0) <= at_s else None

    def _plan(self, fault: ScheduledFault, target: Node, at_s: Seconds) -> None:
        trigger, start_s = self._trigger(fault), self._start_s
        if target == STORE:
            self._hit_store(fault, trigger, at_s)
            return
        if target == GATEWAY:
            start_s = self._gateway_s
        match fault.action:
            case Crash():
                self._inject(ProcessFault(trigger, target, Crash(start_s)), target, at_s + start_s)
            case Stall(for_s):
                left_s = self._end_s - at_s if isinstance(fault.trigger, At) else self._end_s
                for_s = min(for_s, left_s)
                self._stalls[target] = len(self.injected)
                self._inject(ProcessFault(trigger, target, Stall(for_s)), target, at_s + for_s)
            case Slow(_, for_s) as slow:
                self._inject(ProcessFault(trigger, target, slow), target, at_s + for_s)
            case Cut():
                self._inject(LinkFault(trigger, (target, GATEWAY), Cut()), target, at_s)
            case Restart() if target == GATEWAY:
                self._inject(ProcessFault(trigger, target, Crash(start_s)), target, at_s + start_s)
            case Restart():
                self._drain(target, at_s, start_s)
            case Drain(for_s):
                self._drain(target, at_s, for_s)
            case _:
                raise BugError(f"{fault.action} can't be planned")

    def _hit_store(self, fault: ScheduledFault, trigger: At | When, at_s: Seconds) -> None:
        """All stores of the fleet, which are there again at once, without what they had."""
        action = fault.action if isinstance(fault.action, FillDisk) else LoseBlocks()
        self._inject(StoreFault(trigger, action), STORE, at_s)

    def _inject(self, fault: Fault, target: Node, back_at: Seconds) -> None:
        self.injected.append(fault)
        self._back_at[target] = back_at

    def _drain(self, target: Node, at_s: Seconds, away_s: Seconds) -> None:
        self.drains.append(PlannedDrain(at_s=at_s, worker=target, away_s=away_s))
        self._back_at[target] = at_s + DRAIN_S + away_s

    def _resume(self, fault: ScheduledFault, at_s: Seconds) -> Node | None:
        """End a stop early: it was planned before, as faults come in order of time."""
        standing = [name for name in self._stalls if self._back_at[name] > at_s]
        match fault.target:
            case AnyWorker(role):
                fitting = [one for one in standing if role in (None, self._roles.get(one))]
                name = next(iter(preference(self._seed, fault, fitting)), None)
            case named:
                name = named if named in standing else None
        if name is None:
            return None
        place = self._stalls.pop(name)
        stalled = self.injected[place]
        assert isinstance(stalled, ProcessFault)
        assert isinstance(stalled.trigger, At)
        for_s = at_s - (stalled.trigger.seconds - self._after_s)
        self.injected[place] = ProcessFault(stalled.trigger, name, Stall(for_s))
        self._back_at[name] = at_s
        return name

    def _trigger(self, fault: ScheduledFault) -> At | When:
        match fault.trigger:
            case At(seconds):
                return At(self._after_s + seconds)
            case When() as when:
                return when
