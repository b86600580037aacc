"""A scenario: a fleet, what is asked of it, by which rules it decides, and what goes wrong.

Values alone, so that equal scenarios give equal runs. `scenario_toml` reads one from a file,
`scenario_fleet` builds it, `simulate` runs it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from antiphon.core.faults import FaultSchedule
from antiphon.core.goodput import Slos
from antiphon.types import Config, Role, SchedulerConfig, Seconds, WorkerId
from antiphon.workload import Workload

from .store_plan import StorePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineTimes:
    """Devices of the catalogue, `tensor` of them in each of `pipeline` stages."""

    device: str
    tensor: int = 1
    pipeline: int = 1
    weight_bits: int = 16
    kv_bits: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTimes:
    """DistServe's measurements of A100."""

    tensor: int = 1
    pipeline: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledTimes:
    """A file that `antiphon profile` wrote."""

    file: Path


PoolTimes: TypeAlias = RooflineTimes | PublishedTimes | ProfiledTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """Equal workers. `kv_tokens` None: as many as fit beside the weights."""

    name: str
    role: Role
    workers: int
    times: PoolTimes
    kv_tokens: int | None = None
    scheduler: SchedulerConfig

    @property
    def ids(self) -> tuple[WorkerId, ...]:
        """Its workers' names."""
        return tuple(WorkerId(f"{self.name}-{number}") for number in range(self.workers))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """Of each worker, one in and one out. `layerwise`: KV goes layer by layer as it is computed."""

    bytes_per_s: float = 25e9
    setup_s: Seconds = 0.002
    layerwise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPlan:
    """What users send, and how. `rate_per_s` is of calls; None: the workload's own times.

    `copies`: so many groups of users who send a trace. `max_tokens`, `front_s`: see `UserRules`.
    `all_stamps`: the time of each token is kept, not of the first and the last only.
    """

    workload: Workload
    arrivals: str | None = None
    rate_per_s: float | None = None
    copies: int = 1
    slos: Slos = ()
    max_tokens: int | None = None
    patience_s: Seconds | None = None
    all_stamps: bool = True
    front_s: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """See the top of this file.

    `model`: a name, for people if `kv_bytes_per_token` and `context` are given. `start_s`: how long
    a worker takes from its start until it can join.
    """

    title: str
    model: str
    seed: int
    duration_s: Seconds
    warmup_s: Seconds
    users: UserPlan
    pools: tuple[PoolPlan, ...]
    link: LinkPlan
    store: StorePlan | None
    config: Config
    faults: FaultSchedule
    start_s: Seconds
    kv_bytes_per_token: int
    context: int

    @property
    def workers(self) -> tuple[tuple[WorkerId, Role], ...]:
        """All of them, pool by pool."""
        return tuple((id, pool.role) for pool in self.pools for id in pool.ids)
