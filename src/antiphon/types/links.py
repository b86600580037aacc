"""Who reads KV from whom, and over what: what workers and stores report of it."""

from dataclasses import dataclass
from enum import StrEnum

from .ids import StoreName

MOST_LINKS = 16
"""A worker reports so many, those with most bytes."""
MOST_PATHS = 8
"""Of one link."""
MOST_PROBLEM_CHARS = 80


class Transport(StrEnum):
    """What brings pages of KV."""

    MEMORY = "memory"
    """The owner's memory, mapped: both are on one host."""
    TCP = "tcp"
    NIXL = "nixl"
    """The owner's memory, read across hosts without its doing: by RDMA, where there is any."""


class PathState(StrEnum):
    """Whether a path can be counted on."""

    UNUSED = "unused"
    """No connection was needed yet, or it is being opened."""
    OPEN = "open"
    RESTING = "resting"
    """It failed, and is left alone for a while."""
    ON_TRIAL = "on trial"
    """It has rested; what is sent over it now says whether it is good again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathUse:
    """One address of an owner. `bytes_per_s` None: not known, or not any more. Totals are those of
    the present connection; `problem`: of the last failure."""

    address: str
    state: PathState
    bytes_per_s: float | None = None
    bytes_total: int = 0
    failures_total: int = 0
    rests_total: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """What came from one owner. `paths`: of a transport that has some."""

    owner: str
    transport: Transport
    bytes_total: int
    paths: tuple[PathUse, ...] = ()


class PeerState(StrEnum):
    """What a store thinks of another one of its pool."""

    HERE = "here"
    AWAY = "away"
    """It does not answer, or refuses."""
    RESTING = "resting"
    """It is here, but reads from it failed, so that it is left alone for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPeer:
    """Another store of the pool, as one of them sees it.

    `blocks`: those that it has, as far as it has told. What was read from it counts since this
    store began: `read_blocks_total` came, `failed_reads_total` calls brought less than was lent, or
    nothing in time. `bytes_per_s`: as fast as it sends. `problem`: why it is away. `level`: at
    which its blocks are read (empty: it is away); `level_problem`: how the two are set unlike.
    """

    name: StoreName
    address: str
    state: PeerState
    blocks: int = 0
    read_blocks_total: int = 0
    read_bytes_total: int = 0
    failed_reads_total: int = 0
    bytes_per_s: float = 0.0
    problem: str = ""
    level: str = ""
    level_problem: str = ""
    paths: tuple[PathUse, ...] = ()
