"""What workers, gateway and store say to each other about blocks of KV that outlive a request.

    worker ── Put ──► store                         "these sealed pages of mine are this block"
    worker ── Locate ──► store ── Located ──►       "copy these pages of mine, under this lease"
    worker, store ── KvDump, KvEvents ──► gateway   who holds which block

Both memories are mapped by both sides, so that no message carries KV. A put needs no lease: if a
page was reassigned before the store has copied it, its generation says so, and the put is dropped.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from .fleet import KvShape
from .handover import OfferedPage
from .ids import BlockKey, Incarnation, LeaseId, PageId, RequestId, Seconds, WorkerId
from .links import PoolPeer

STORE = WorkerId("store")
"""The store's name among those who hold KV."""


class Tier(StrEnum):
    """Where a block lies, fastest first."""

    DEVICE = "device"
    """A worker's own KV memory."""
    HOST = "host"
    """The store's shared memory, which workers copy from."""
    PEER = "peer"
    """Another store of the pool: it comes over the network, into the host tier."""
    DISK = "disk"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """A scheduler's word to its driver: room is reserved, fill it with these blocks of the store.

    `keys` are consecutive blocks of one prompt, from the first that is not here on; block i goes to
    the pages `targets[i]`. Whatever can't be had is computed here. `tenant` as in `Locate`.
    `position`: how many blocks are before the first. `due`: when they are to be here, so that what
    is computed behind them is in time for the first token (None: it has no target); `compute_s`:
    what computing all of them takes here. Both as far as is known how fast prompts are computed.
    `back`: of each page of a block, by how many blocks before the end of what comes it is still
    read (0: always); empty: every page of every block is. Unless it is empty, what comes is of use
    as a whole only.
    """

    request: RequestId
    attempt: int
    keys: tuple[BlockKey, ...]
    targets: tuple[tuple[PageId, ...], ...]
    tenant: bytes = b""
    position: int = 0
    due: Seconds | None = None
    compute_s: Seconds | None = None
    back: tuple[int, ...] = ()

    def first_blocks(self, blocks: int) -> tuple[int, ...]:
        """Of each page of a block, from which block on it is read by who goes on behind the first
        `blocks`. At least one block is asked for."""
        back = self.back or (0,) * len(self.targets[0])
        return tuple(max(0, blocks - one) if one else 0 for one in back)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHello:
    """A worker asks to put and read blocks. Its memory's file descriptor rides on this message."""

    worker: WorkerId
    incarnation: Incarnation
    kv: KvShape
    identity: bytes
    numerics: str


class StoreRefusal(StrEnum):
    """Why a store does not serve a worker."""

    PROTOCOL = "protocol"
    KV_SHAPE = "kv_shape"
    """Workers with pages of another layout are connected."""
    MODEL = "model"
    INVALID = "invalid"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class StoreRefused:
    """The store closes the stream after this. `message` says what to change."""

    reason: StoreRefusal
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWelcome:
    """The worker is in; the file descriptor of the store's memory rides on this message."""

    store: Incarnation
    kv: KvShape
    lease_ttl_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBlock:
    """A complete block that lies in these sealed pages of its worker, in order."""

    key: BlockKey
    parent: BlockKey | None
    pages: tuple[OfferedPage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Keep these if it is worth it. Not answered; `tenant` names whose quota they count for: it is
    in files and on other machines, so a digest of what must stay secret (`core.kv.tenant_of`)."""

    tenant: bytes
    blocks: tuple[PutBlock, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """What computed these blocks has failed: nobody shall read them again, on any tier.

    Not answered. Blocks that were put before it are meant, whether they have been copied or not.
    """

    keys: tuple[BlockKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Locate:
    """Where do these consecutive blocks lie? Blocks on slower tiers are brought up within `wait_s`.

    `tenant` as in `Put`; `position` and `compute_s` as in `Fetch`; `left_s`: until its `due`. A
    store of a pool may find that computing is better than what its network brings: then it does
    not wait for the rest.
    """

    tenant: bytes
    keys: tuple[BlockKey, ...]
    wait_s: Seconds
    position: int = 0
    left_s: Seconds | None = None
    compute_s: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The pages of the longest prefix of the keys that can be copied now, block by block.

    They stay until `ttl_s` after this was sent, or `Release`. No blocks: then there is no lease.
    """

    lease: LeaseId | None
    ttl_s: Seconds
    blocks: tuple[tuple[OfferedPage, ...], ...]
    from_disk: int = 0
    """How many of the blocks had to be brought up for this."""
    lossy: tuple[int, ...] = ()
    """Which of the blocks, counted from 0, are not to the bit what was put."""


class KvChange(NamedTuple):
    """One block came to a tier of a holder, or left it."""

    key: BlockKey
    tier: Tier
    stored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEvents:
    """Changes number `first`, `first` + 1, … of one life of a holder, counted from 0."""

    first: int
    changes: tuple[KvChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvDump:
    """A part of all that a holder holds before change number `next`. The first part has `begins`;
    the dump is whole with the part that has `ends`."""

    next: int
    begins: bool
    ends: bool
    blocks: tuple[tuple[BlockKey, Tier], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCounts:
    """What a router knows of who holds what.

    `blocks`: different ones, of lives that are over too, until they are cleared away. `held`:
    one for each holder and tier that has it. `refused_total`: beyond what is kept of a holder.
    """

    holders: int
    behind: int
    """Holders of whom something is known to be missing."""
    blocks: int
    held: int
    refused_total: int
    replays_total: int
    dumps_total: int


@dataclass(frozen=True, slots=True)
class KvReplay:
    """Say all changes from this number on again; a holder that has forgotten them sends a dump."""

    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWatch:
    """A gateway asks a store for its dump and its changes, and for calls of `StoreAsk`."""

    gateway: Incarnation


class StoreOp(StrEnum):
    """What an operator may ask of a store."""

    STATS = "stats"
    LOOKUP = "lookup"
    PIN = "pin"
    UNPIN = "unpin"
    PREFETCH = "prefetch"
    """Bring blocks up to the host tier."""
    CLEAR = "clear"
    """Forget these blocks, all of a tenant, or, with neither, all. Nothing that was put before is
    found on any tier after the answer."""
    MOVE = "move"
    """To the tier that is named."""
    VERIFY = "verify"
    """Read again and compare checksums; what is wrong is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAsk:
    """An operator's wish. After `wait_s` (None: never) nobody waits for its end any more."""

    op: StoreOp
    keys: tuple[BlockKey, ...] = ()
    tenant: bytes | None = None
    tier: Tier | None = None
    wait_s: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStats:
    """What came from peers at one level, and what was encoded for them, since the store began.

    `chosen_total`: chunks for which the level was chosen. `read_bytes_total`: as they crossed the
    network. Seconds are of threads.
    """

    level: str
    chosen_total: int = 0
    read_blocks_total: int = 0
    read_bytes_total: int = 0
    decode_s_total: Seconds = 0.0
    damaged_blocks_total: int = 0
    encoded_blocks_total: int = 0
    encoded_bytes_total: int = 0
    encode_s_total: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStats:
    """Counts of one tier at one moment; `_total` ones only grow."""

    tier: Tier
    blocks: int
    used_bytes: int
    limit_bytes: int
    pinned_blocks: int = 0
    leases: int = 0
    put_blocks_total: int = 0
    hit_blocks_total: int = 0
    missed_blocks_total: int = 0
    evicted_blocks_total: int = 0
    dropped: tuple[tuple[str, int], ...] = ()
    """Puts that were not kept, and reads that were not given, by reason."""
    levels: tuple[LevelStats, ...] = ()
    """Of tier `peer`: those that were used."""
    computed_blocks_total: int = 0
    """Of tier `peer`: blocks that were left to be computed, as that was the better choice."""
    block_s: Seconds | None = None
    """Of tier `peer`: about how long each block of many takes to come, moved and coded as blocks
    are now; None: nothing has come yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAnswer:
    """`tiers`: for each key, where it lies now (fastest first). `blocks`: how many were affected.

    `problem`: why nothing was done, or not all. `note`: what was done is as asked, and this should
    be known of it: what was left out, and why. `pool`: with `stats`, the other stores of the pool.
    """

    tiers: tuple[tuple[Tier, ...], ...] = ()
    blocks: int = 0
    stats: tuple[TierStats, ...] = ()
    pool: tuple[PoolPeer, ...] = ()
    problem: str = ""
    note: str = ""
