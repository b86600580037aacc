"""A schedule as people read it before it is played."""

from collections.abc import Sequence
from math import isfinite

from antiphon.core.number_text import number_text
from antiphon.types import Role

from .fault import At, Slow, Stall, When
from .schedule import (
    ACTION_NAMES,
    AnyWorker,
    Drain,
    FillDisk,
    Lag,
    ScheduledAction,
    ScheduledFault,
    Target,
    preference,
)


def target_text(target: Target) -> str:
    """As it is written in a plan."""
    match target:
        case AnyWorker(role):
            return "random" if role is None else role.value
        case name:
            return name


def schedule_lines(
    faults: Sequence[ScheduledFault], seed: int, workers: Sequence[tuple[str, Role]]
) -> Sequence[str]:
    """One line a fault: when, what, and whom, in the order in which workers would be hit."""
    return [
        f"{_when(fault.trigger):>14}  {action_text(fault.action):<24} {_whom(fault, seed, workers)}"
        f"  (fault {fault.entry})"
        for fault in faults
    ]


def _when(trigger: At | When) -> str:
    match trigger:
        case At(seconds):
            return f"{seconds:.2f} s"
        case When(boundary, occurrence):
            return f"{boundary} {occurrence}"


def action_text(action: ScheduledAction) -> str:
    """What happens, and for how long."""
    name = ACTION_NAMES[type(action)]
    match action:
        case Stall(for_s) | Drain(for_s) | FillDisk(for_s):
            return f"{name} for {number_text(for_s)} s" if isfinite(for_s) else name
        case Slow(factor, for_s):
            return f"{name} {number_text(factor)} times for {number_text(for_s)} s"
        case Lag(by_s, for_s):
            return f"{name} by {number_text(by_s)} s for {number_text(for_s)} s"
        case _:
            return name


def _whom(fault: ScheduledFault, seed: int, workers: Sequence[tuple[str, Role]]) -> str:
    match fault.target:
        case AnyWorker(role):
            names = [name for name, its in workers if role in (None, its)]
            return " or else ".join(preference(seed, fault, names)) or target_text(fault.target)
        case name:
            return name
