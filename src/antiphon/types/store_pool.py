"""What the stores of a pool say to each other.

    caller ── PoolHello ──► store ── PoolWelcome ──► KvDump, KvEvents … ──►   "these I have"
    caller ── PoolRead ──► store ── PoolLent ──►      "read these pages of mine, under this lease"
    caller ── PoolPlace ──► store                     "you are home to these: read them from me"
    caller ── PoolClear ──► store ── StoreAnswer ──►  "an operator wants these forgotten"
    caller ── Forget ──► store                        "what computed these has failed"

Each store calls each other one, so that there are two streams between two stores. KV itself goes
over data sockets: the welcome says where they are, and with which key they open.

Addresses of stores are spelled NAME@HOST:PORT, or NAME@HOST:PORT,HOST:PORT with several paths.
"""

from dataclasses import dataclass

from .fleet import KvShape
from .handover import OfferedPage
from .ids import BlockKey, Incarnation, LeaseId, Seconds, StoreName
from .transfer import DataAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHello:
    """A store asks another one to be in its pool. `address`: where it is called back; a store that
    hears of one that it does not know calls it. `blocks`: how many its memory holds."""

    name: StoreName
    incarnation: Incarnation
    identity: bytes
    kv: KvShape
    blocks: int
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWelcome:
    """It is in. `kv` is the shape of the memory whose pages `data` opens, for this stream's life.
    `known`: other stores of the pool. `encoded`: opens pages of `encoded_page_bytes` in which
    encoded blocks are lent; None: it lends blocks as they are only. `level`: its
    `store_pool.level`; `profile`: the id of its profile, if it has one."""

    name: StoreName
    incarnation: Incarnation
    blocks: int
    kv: KvShape
    data: DataAccess
    known: tuple[str, ...]
    encoded: DataAccess | None = None
    encoded_page_bytes: int = 0
    level: str = "raw"
    profile: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRead:
    """Lend these blocks; what is on disk is brought up within `wait_s`.

    `level`: encoded so, as far as that can be; `positions`: how many blocks are before each in its
    chain, where they are to be encoded."""

    keys: tuple[BlockKey, ...]
    wait_s: Seconds
    level: str = "raw"
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LentBlock:
    """A block that lies in these pages of the lender's memory; `encoded_bytes`: it is encoded, in
    so many bytes of pages of the lender's other memory; 0: it is as it is."""

    key: BlockKey
    pages: tuple[OfferedPage, ...]
    encoded_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLent:
    """Those of the blocks that there are; they stay until `ttl_s` after this was sent, or
    `Release`. No blocks: then there is no lease. `encode_s`: what encoding took the lender's
    threads, for this answer; `encoded`: how many blocks that was."""

    lease: LeaseId | None
    ttl_s: Seconds
    blocks: tuple[LentBlock, ...]
    encode_s: Seconds = 0.0
    encoded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBlock:
    """A block that its home may read from the store that says this; `position` blocks are before it
    in its chain."""

    key: BlockKey
    parent: BlockKey | None
    position: int
    tenant: bytes
    numerics: str


@dataclass(frozen=True, slots=True)
class PoolPlace:
    """Not answered: whether they came is heard as the home's next changes."""

    blocks: tuple[PlacedBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolClear:
    """Forget these blocks (None: all), of that tenant (None: of any), on all of a store's tiers."""

    tenant: bytes | None
    keys: tuple[BlockKey, ...] | None
