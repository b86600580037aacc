"""Everything that a run of a virtual cluster depends on, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from antiphon.core.faults import FaultPlan, Node
from antiphon.types import (
    ClusterConfig,
    KvConfig,
    Request,
    RequestId,
    Role,
    RouterConfig,
    SchedulerConfig,
    Seconds,
    SequenceKey,
    WorkerId,
)

from .network import Hostility, LinkTimes

GATEWAY: Node = "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A client calls, and wants its whole answer within `patience_s`."""

    at: Seconds
    request: Request
    patience_s: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """A client hangs up, or drops one sequence."""

    at: Seconds
    request: RequestId
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """An operator has a worker drained; what is left after `timeout_s` is moved."""

    at: Seconds
    worker: WorkerId
    timeout_s: Seconds


Stimulus: TypeAlias = Call | GiveUp | Empty


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One worker of a virtual cluster."""

    id: WorkerId
    role: Role = Role.MIXED
    pages: int = 32
    step_s: Seconds = 0.002
    """How long a forward pass takes, whatever is in it."""
    numerics: str = "scripted"
    clock_offset_s: Seconds = 0.0
    scheduler: SchedulerConfig | None = None
    """None: as all others'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """A store that outlives all workers, and how little can be relied on it."""

    believed_tokens: int
    """Of each prompt so many tokens are asked for, whatever a router believes."""
    lost_share: float = 0.1
    """So many of the blocks that are asked for can't be had, though they were put."""
    put_s: Seconds = 0.002
    fetch_s: Seconds = 0.003
    groups: int = 1
    """A fetch comes in so many groups of layers."""
    late_share: float = 0.0
    """Of so many fetches the last layers come `late_s` later."""
    late_s: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSetup:
    """A cluster, what is asked of it, and what goes wrong."""

    workers: tuple[WorkerSpec, ...]
    stimuli: tuple[Stimulus, ...]
    faults: FaultPlan = field(default_factory=lambda: FaultPlan(0))
    hostility: Hostility = field(default_factory=Hostility)
    times: LinkTimes = field(default_factory=LinkTimes)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    router: RouterConfig = field(default_factory=RouterConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    kv: KvConfig = field(default_factory=KvConfig)
    max_model_len: int = 64
    vocab_size: int = 16
    page_pull_s: Seconds = 0.0005
    """How long one page takes from one worker's memory to another's."""
    far: bool = False
    """Each worker is on a host of its own: pages come over the network, and not from somebody who
    is dead, or from whom a partition keeps."""
    store: StoreSpec | None = None
    kv_bytes_per_token: int = 1
    kept_changes: int = 32
    """Changes of its blocks that a worker can say again: few, so that dumps are needed too."""
    most_repeats: int = 1
    """Steps of decodes that a worker may run in a row as one event."""
    stops: Mapping[SequenceKey, int] = field(default_factory=dict)
    """Where a sequence's text meets a stop string: the index of that token."""
