"""Whom a fault hits, of those who can be hit now."""

from collections.abc import Mapping, Sequence

from antiphon.core.faults import (
    GATEWAY,
    AnyWorker,
    Resume,
    ScheduledFault,
    can_be_spared,
    preference,
)
from antiphon.types import Role

from .lives import Life


def choose_victim(
    fault: ScheduledFault, lives: Mapping[str, Life], under_fault: frozenset[str], seed: int
) -> Life | None:
    """Whom the fault hits; None: nobody who can be hit now.

    A named one must be there and not under another fault. Of several workers it is the first of the
    fault's order of preference that can be spared: each phase that it serves is left with another
    worker, who is there and not under fault. So the choice repeats with the seed as far as the
    cluster does. Whoever is to go on again (`Resume`) must be under fault instead.
    """
    if isinstance(fault.action, Resume):
        return _first(fault, [life for life in lives.values() if life.name in under_fault], seed)
    sound = [
        life
        for life in lives.values()
        if life.there and life.pid and life.name not in under_fault and life.role in list(Role)
    ]
    if isinstance(fault.target, AnyWorker):
        return _first(fault, [life for life in sound if can_spare(life, sound)], seed)
    named = lives.get(fault.target)
    if named is None or named.pid is None or named.name in under_fault:
        return None
    return named if _can_be_hit(named) else None


def _can_be_hit(life: Life) -> bool:
    """A gateway is there as a process before all its workers have joined."""
    return life.there or life.role == GATEWAY


def _first(fault: ScheduledFault, candidates: Sequence[Life], seed: int) -> Life | None:
    by_name = {life.name: life for life in candidates if _fits(fault, life)}
    return next((by_name[name] for name in preference(seed, fault, list(by_name))), None)


def _fits(fault: ScheduledFault, life: Life) -> bool:
    match fault.target:
        case AnyWorker(role):
            return life.role in list(Role) and role in (None, life.role)
        case name:
            return life.name == name


def can_spare(worker: Life, workers: Sequence[Life]) -> bool:
    """Each phase that it serves is left with another of the workers."""
    roles = {other.name: Role(other.role) for other in workers}
    return can_be_spared(worker.name, Role(worker.role), roles)
