"""What a driver is to do for a planner, worker by worker."""

from dataclasses import dataclass
from typing import TypeAlias

from antiphon.types import Role, WorkerId


@dataclass(frozen=True, slots=True)
class AddOrder:
    """Start a worker of that name and role. It is over when the worker serves, or `not_added`."""

    number: int
    worker: WorkerId
    role: Role


@dataclass(frozen=True, slots=True)
class EndOrder:
    """Drain the worker, and end it. Say `over`, whatever came of it."""

    number: int
    worker: WorkerId
    role: Role


@dataclass(frozen=True, slots=True)
class FlipOrder:
    """Drain the worker, and let it go on in role `to`. Say `over`, whatever came of it."""

    number: int
    worker: WorkerId
    role: Role
    to: Role


Order: TypeAlias = AddOrder | EndOrder | FlipOrder
"""`number` is the order's own: names of workers are used again. `role`: the one that the worker
has, or is to have first."""
