"""How a planner behaves."""

from dataclasses import dataclass

from antiphon.errors import UsageError
from antiphon.types import Role, Seconds, Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerRules:
    """Targets, limits and temper of one planner.

    `ready_s`: from `Add` until a worker serves, until that was seen. `headroom`: share that is
    planned above the forecast. `dead_band`: a pool shrinks only if fewer would do at so much more
    load. `cool_down_s`: for so long. `clear_s`: a queue that is too long is to be gone so long
    after help can have come. `most_busy`: those who stay must not be busier. `memory_s`: a size
    that was given up and needed again is kept for so long, at that load. `budget`: most devices of
    all roles; `least`: workers of each.

    Raises `UsageError` for rules that nobody can keep.
    """

    slo: Slo
    roles: tuple[Role, ...] = (Role.PREFILL, Role.DECODE)
    interval_s: Seconds = 15.0
    ready_s: Seconds = 60.0
    headroom: float = 0.05
    dead_band: float = 0.1
    cool_down_s: Seconds = 30.0
    clear_s: Seconds = 30.0
    most_busy: float = 0.9
    memory_s: Seconds = 3600.0
    budget: int = 64
    least: int = 1

    def __post_init__(self) -> None:
        if not self.roles or len(set(self.roles)) < len(self.roles):
            raise UsageError("roles: name each role that the planner may change, once")
        for name in ("interval_s", "clear_s", "most_busy"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{name} = {getattr(self, name)}: it must be above 0")
        for name in ("ready_s", "headroom", "dead_band", "cool_down_s", "memory_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError(f"{name} = {getattr(self, name)}: it must not be below 0")
        if self.least < 1:
            raise UsageError("least = 0: a role without a worker serves nobody; at least 1")
