"""What a planner decides."""

from dataclasses import dataclass
from typing import TypeAlias

from antiphon.types import Role, Seconds


@dataclass(frozen=True, slots=True)
class Add:
    """Start so many workers of a role."""

    role: Role
    workers: int


@dataclass(frozen=True, slots=True)
class Take:
    """Drain so many workers of a role, and end them."""

    role: Role
    workers: int


@dataclass(frozen=True, slots=True)
class Flip:
    """Drain so many workers of a role, and let them go on in another."""

    role: Role
    to: Role
    workers: int


Move: TypeAlias = Add | Take | Flip


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many workers of each role there should be, why, and what to do for it now.

    `wanted`: what was needed before budget and calm. `expected_per_s`: the highest rate that is
    forecast until a worker that is added now would serve. Moves may fall short of the target while
    workers that leave still hold their devices. Whoever only wants advice carries out no move.
    """

    at: Seconds
    target: tuple[tuple[Role, int], ...]
    wanted: tuple[tuple[Role, int], ...]
    moves: tuple[Move, ...]
    expected_per_s: float
    reason: str
    ask_again_at: Seconds
