"""One budget for all roles: who gets how much of it, and which moves lead there."""

from collections.abc import Mapping, Sequence

from antiphon.types import Role

from .decision import Add, Flip, Move, Take
from .observation import Observation

Counts = dict[Role, int]


def share(wanted: Counts, least: int, budget: int, devices: Mapping[Role, int]) -> Counts:
    """What is wanted, or as much of it as the budget has room for, in the same proportions.

    Whoever has the smallest part of what it wants gets the next worker. At least `least` each.
    """
    counts = dict.fromkeys(wanted, least)
    return grown(counts, wanted, budget - _devices(counts, devices), devices)


def grown(counts: Counts, wanted: Counts, room: int, devices: Mapping[Role, int]) -> Counts:
    """`counts`, increased towards `wanted` as far as there is room for more devices."""
    counts = dict(counts)
    order = list(counts)
    while True:
        short = [role for role in order if counts[role] < wanted[role] and devices[role] <= room]
        if not short:
            return counts
        scarcest = min(short, key=lambda role: (counts[role] / wanted[role], order.index(role)))
        counts[scarcest] += 1
        room -= devices[scarcest]


def targets(settled: Counts, seen: Observation, budget: int, devices: Mapping[Role, int]) -> Counts:
    """`settled`, but growth takes only what the budget leaves beside all others.

    Never more devices than the budget, or than there are already if these are more.
    """
    now = {role: seen.pool(role).workers for role in settled}
    base = {role: min(settled[role], now[role]) for role in settled}
    return grown(base, settled, budget - _devices(base, devices), devices)


def moves(
    target: Counts, seen: Observation, budget: int, devices: Mapping[Role, int]
) -> Sequence[Move]:
    """Flips before all else: they are ready sooner and cost nothing.

    What drains still has its devices: an `Add` that would exceed the budget waits until it is gone.
    """
    left = {role: target[role] - seen.pool(role).workers for role in target}
    found: list[Move] = []
    for short in target:
        for over in target:
            free = seen.pool(over).ready - seen.pool(over).pinned
            count = min(left[short], -left[over], free)
            if count > 0 and devices[short] == devices[over]:
                found.append(Flip(over, short, count))
                left[short] -= count
                left[over] += count
    pools = {role: seen.pool(role) for role in target}
    room = budget - sum((pools[r].workers + pools[r].draining) * devices[r] for r in target)
    for role, count in left.items():
        if count < 0:
            found.append(Take(role, -count))
        added = min(count, max(0, room // devices[role]))
        if added > 0:
            found.append(Add(role, added))
            room -= added * devices[role]
    return found


def _devices(counts: Counts, devices: Mapping[Role, int]) -> int:
    return sum(count * devices[role] for role, count in counts.items())
