"""What processes of a cluster say to each other beyond commands, facts and answers.

A worker's stream to its gateway carries `Hello`, then `Dispatch`, `Adopt`, `Abort`, `GrantTo`,
`Renew`, `Release`, `RoleChanged` one way and answers, `EventBatch` and `WorkerView` the other. A
worker's stream to another worker carries `PeerHello`, then `TakenLease` and `RenewTaken`. Both
incarnations are fixed when a stream is joined, so that no message repeats them. Points in time
cross as durations: see `wire.durations`.
"""

from dataclasses import dataclass
from enum import StrEnum

from .events import (
    AttemptFailed,
    Fetched,
    Preempted,
    Pulled,
    SequenceEnded,
    Started,
    TokenGenerated,
    TokensGenerated,
)
from .fleet import KvShape, WorkerInfo, WorkerView
from .handover import LeaseRefused, Offer
from .ids import Incarnation, LeaseId, Seconds, WorkerId
from .transfer import DataAccess


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker asks to join, with what it is and its first counts."""

    info: WorkerInfo
    view: WorkerView


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The worker is in. Both sides say every `heartbeat_s` that they live; whoever hears nothing
    for `lost_after_s` takes the stream as over."""

    gateway: Incarnation
    heartbeat_s: Seconds
    lost_after_s: Seconds
    lease_ttl_s: Seconds


class JoinRefusal(StrEnum):
    """Why a worker may not join."""

    PROTOCOL = "protocol"
    MODEL = "model"
    KV_SHAPE = "kv_shape"
    MAX_MODEL_LEN = "max_model_len"
    """Its answers would end before those of others."""
    INVALID = "invalid"
    """What it says of itself can't be."""
    LIVE = "live"
    """A worker of this id is there, in another life. It goes when its stream is over."""
    FULL = "full"
    OVER = "over"
    """This life was given up as lost: the process must join under a new incarnation."""
    HOST = "host"
    """Its certificate is of another host than it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRefused:
    """The worker is not in. `message` says what to change, or, if `transient`, to wait for."""

    reason: JoinRefusal
    message: str
    transient: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """A worker wants to end: what it has shall finish within `timeout_s`, or go on elsewhere. The
    gateway says when nothing is left."""

    timeout_s: Seconds


@dataclass(frozen=True, slots=True)
class Probe:
    """Whoever has a certificate of the cluster asks a door to say that it is there, with so many
    bytes: to see how long they take."""

    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """It is. `unix_s`: what the clock of its host says."""

    unix_s: float
    filler: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantTo:
    """An offer's owner shall let this life of a worker take the lease, for this attempt."""

    lease: LeaseId
    taker: Incarnation
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """Events by kind; `runs` restores their order: (which kind, how many of it come next).

    Kinds are numbered in the order of these fields, from 0.
    """

    started: tuple[Started, ...] = ()
    tokens: tuple[TokenGenerated, ...] = ()
    ended: tuple[SequenceEnded, ...] = ()
    preempted: tuple[Preempted, ...] = ()
    offers: tuple[Offer, ...] = ()
    pulled: tuple[Pulled, ...] = ()
    failed: tuple[AttemptFailed, ...] = ()
    fetched: tuple[Fetched, ...] = ()
    repeated: tuple[TokensGenerated, ...] = ()
    runs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerHello:
    """A worker wants to take leases of another, of exactly this life.

    `descriptor`: it does not have the owner's memory yet and asks for its file descriptor. `nixl`:
    it reads memory of other hosts by NIXL, where the owner offers that.
    """

    taker: WorkerId
    incarnation: Incarnation
    owner: WorkerId
    owner_incarnation: Incarnation
    kv: KvShape
    descriptor: bool
    nixl: bool = False


class PeerRefusal(StrEnum):
    """Why an owner does not speak with a taker."""

    PROTOCOL = "protocol"
    GONE = "gone"
    """The owner is another worker, or in another life: what that one offered is gone."""
    KV_SHAPE = "kv_shape"
    FULL = "full"
    HOST = "host"
    """The taker's certificate is of another host than its name."""


@dataclass(frozen=True, slots=True)
class PeerRefused:
    """The owner closes the stream after this."""

    reason: PeerRefusal
    message: str


@dataclass(frozen=True, slots=True)
class PeerWelcome:
    """The stream is open; the owner's memory, if asked for, rides on this very message.

    `data`: to a taker on another host, who can't map that memory.
    """

    kv: KvShape
    data: DataAccess | None = None


@dataclass(frozen=True, slots=True)
class TakenLease:
    """A lease as its taker names it: the owner compares the attempt with the grant."""

    lease: LeaseId
    attempt: int


@dataclass(frozen=True, slots=True)
class RenewTaken:
    """A taker still reads these."""

    leases: tuple[LeaseId, ...]


@dataclass(frozen=True, slots=True)
class RenewAnswered:
    """All leases of the `RenewTaken` live on but these."""

    refused: tuple[LeaseRefused, ...] = ()
