"""What others may know of a worker and of the model that it serves."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from .expert_tokens import ExpertTokens
from .ids import HostName, Incarnation, Seconds, TokenId, WorkerId
from .links import LinkUse


@dataclass(frozen=True, slots=True)
class KvGroup:
    """Layers that see equally far back.

    `window`: how many positions a row sees, its own included; 0: all. `pages`: so many pages of KV
    memory hold `page_tokens` tokens of these layers.
    """

    window: int = 0
    pages: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The facts of a loaded model that decisions and the gateway need."""

    name: str
    identity: bytes
    """BLAKE2b-256 over weights, config, tokenizer and RoPE: equal digests mean equal KV."""
    numerics: str
    """Device kind, instruction set, dtype, quantisation and kernel revision."""
    vocab_size: int
    context_len: int
    eos_token_ids: tuple[TokenId, ...]
    kv_bytes_per_token: int
    kv_groups: tuple[KvGroup, ...] = (KvGroup(),)
    """In the order of their pages within an entry of a page table."""


class Role(StrEnum):
    """Which phases a worker is meant for. Any worker can do both: decode is the fallback."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """What two workers must have in common to read each other's pages, but for `pages`.

    `layout` names the order of a page's numbers: layers, head range, width, dtype. `entry_pages`
    pages together hold `page_tokens` tokens of all layers.
    """

    layout: str
    page_tokens: int
    block_tokens: int
    page_bytes: int
    pages: int
    entry_pages: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """Where processes on other hosts reach this one: one port on each address of its host, which
    must show a certificate of that name."""

    host: HostName
    addresses: tuple[str, ...]
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """Who a worker is: fixed for one life of its process, but for its role."""

    id: WorkerId
    incarnation: Incarnation
    model: ModelInfo
    max_model_len: int
    role: Role = Role.MIXED
    kv: KvShape | None = None
    """None: a worker that exchanges no KV."""
    pid: int = 0
    cores: tuple[int, ...] = ()
    at: HostPort | None = None
    """None: only processes of its own host reach it."""
    store: HostPort | None = None
    """Where the gateway reaches the store of its host; None: it is the gateway's own, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """Counts at one moment. Pages: `free + held + cached == total`, always.

    `peak_pages` is the predicted peak of what runs now. The `_total` counters only grow.
    """

    running: int
    waiting: int
    free_pages: int
    held_pages: int
    cached_pages: int
    total_pages: int
    peak_pages: int
    prefix_queried_tokens_total: int
    prefix_hit_tokens_total: int
    preemptions_total: int
    steps_total: int
    computed_tokens_total: int
    waiting_tokens: int = 0
    """Tokens of prompts that are still to be computed, of requests that wait or run."""
    running_sequences: int = 0
    """Sequences that run, decoding or not."""
    context_tokens: int = 0
    """Tokens in the KV of all running sequences: what a decode step reads."""
    pulling: int = 0
    """Requests whose KV is on its way here, or waits for room."""
    roomless: int = 0
    """Of those, the ones whose KV waits at another worker for room here."""
    offered_pages: int = 0
    """Pages kept for others under leases; part of `held_pages`."""
    leases: int = 0
    busy_s_total: Seconds = 0.0
    """Time spent in forward passes."""
    fetched_tokens_total: int = 0
    """Tokens whose KV came from the store; none of them counts as hit in the prefix cache."""
    fetch_missed_blocks_total: int = 0
    """Blocks that were to come from the store and did not."""
    put_blocks_total: int = 0
    """Blocks offered to the store."""
    put_dropped_blocks_total: int = 0
    """Blocks not offered to it: it was not there, or did not read."""
    store_sessions: int = 0
    """1 while it can ask the store."""
    expert_tokens: ExpertTokens | None = None
    """None: the model has no experts, or this report leaves their counts out."""
    links: tuple[LinkUse, ...] | None = None
    """Whom it has pulled KV from; None: this report leaves it out."""


class Health(StrEnum):
    """What a gateway thinks of a worker."""

    JOINED = "joined"
    SUSPECT = "suspect"
    """Silent for a while: gets nothing new."""
    DRAINING = "draining"
    """Finishes what it has and gets nothing new."""
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Member:
    """A worker that has joined, as its gateway sees it. `view`: its newest counts."""

    info: WorkerInfo
    health: Health
    view: WorkerView
    transport: str = ""
    """What carries its stream: unix or tls; empty: it is in this process."""


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A worker begins a life, and is ready for requests."""

    info: WorkerInfo


@dataclass(frozen=True, slots=True)
class WorkerReported:
    """A worker's newest counts."""

    worker: WorkerId
    view: WorkerView


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """From now on a worker is seen otherwise. LOST: it is out of the fleet."""

    worker: WorkerId
    health: Health


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """From now on a worker has another role."""

    worker: WorkerId
    role: Role


FleetEvent: TypeAlias = WorkerJoined | WorkerReported | HealthChanged | RoleChanged
