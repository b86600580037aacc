"""What a planner sees: one interval, at its end."""

from dataclasses import dataclass

from antiphon.types import Role, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSeen:
    """The workers of one role now, and what they did in the interval.

    `starting`: added, and not ready yet. `draining`: to be taken away; not among the ready ones.
    `cold`: of the ready ones, those that began to serve within the interval. `pinned`: of the ready
    and starting ones, those that an operator has added: they are not for the planner to take.

    `held`: requests that wait for this phase at the gateway now; `queued`: those at workers, and
    `queued_tokens` what is still to be computed of their prompts. `running`: sequences in work; a
    mean.

    `busy_s`, `steps`, `tokens`: time in forward passes, passes, and tokens that went through them,
    of ready workers that are not cold, all together.
    """

    role: Role
    ready: int
    starting: int = 0
    draining: int = 0
    cold: int = 0
    pinned: int = 0
    held: float = 0.0
    queued: float = 0.0
    queued_tokens: float = 0.0
    running: float = 0.0
    busy_s: Seconds = 0.0
    steps: float = 0.0
    tokens: float = 0.0

    @property
    def workers(self) -> int:
        """Ready or soon to be."""
        return self.ready + self.starting


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One interval of `seconds`, seen at its end.

    `requests`: those that came. Lengths are means: `input_tokens` of requests that came,
    `output_tokens` of those that are over, `hit_rate` the share of their prompts that caches had.
    `input_variation`: the squared coefficient of variation of prompt lengths. `starts_s`: how long
    workers took, from being asked for, that began to serve in it.

    A number that is not finite or below 0 was not measured (the mean of nothing is no number).
    """

    at: Seconds
    seconds: Seconds
    requests: float
    input_tokens: float
    output_tokens: float
    hit_rate: float = 0.0
    input_variation: float = 0.0
    pools: tuple[PoolSeen, ...] = ()
    starts_s: tuple[Seconds, ...] = ()

    def pool(self, role: Role) -> PoolSeen:
        """The workers of that role; none if there are none."""
        return next(
            (pool for pool in self.pools if pool.role == role), PoolSeen(role=role, ready=0)
        )
