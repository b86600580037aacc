"""What a planner sees, and what it decides."""

from dataclasses import dataclass, field
from typing import TypeAlias

from antiphon.types import Role, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSeen:
    """The workers of one role now.

    `starting`: added, and not ready yet. `draining`: to be taken away. `busy`: mean share of the
    interval that ready workers computed in. `backlog_s`: work that waits, all together, at a
    worker's pace: for prefill the queued prompts, for decode the sequences that found no place.
    `used`: mean share of memory that is in use. `cold`: of the ready ones, those that began to
    serve within the interval; what they measured counts for nothing.
    """

    role: Role
    ready: int
    starting: int = 0
    draining: int = 0
    cold: int = 0
    busy: float = 0.0
    backlog_s: Seconds = 0.0
    used: float = 0.0

    @property
    def workers(self) -> int:
        """Ready or soon to be."""
        return self.ready + self.starting


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One interval, seen at its end. Lengths are means over the requests that came in it."""

    at: Seconds
    requests: int
    input_tokens: float
    output_tokens: float
    hit_rate: float = 0.0
    ttft_met: float = 1.0
    tpot_met: float = 1.0
    pools: tuple[PoolSeen, ...] = ()

    def pool(self, role: Role) -> PoolSeen:
        """The workers of that role; none if there are none."""
        return next(
            (pool for pool in self.pools if pool.role == role), PoolSeen(role=role, ready=0)
        )


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
    """How many workers of each role there should be, why, and what to do for it.

    `wanted`: what was needed before limits were applied. Advisory planners decide the same; their
    driver does nothing.
    """

    at: Seconds
    target: tuple[tuple[Role, int], ...]
    moves: tuple[Move, ...]
    reason: str
    ask_again_at: Seconds
    wanted: tuple[tuple[Role, int], ...] = field(default=())
