"""What an operator's calls about KV hold, and what is answered: see docs/reference/admin.md."""

from typing import Any

import msgspec

from antiphon.types import Role, TokenId

PROMPT_FORMS = ("text", "tokens", "chat")


class KvPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A prompt in one of its forms. `chat` is a body of `/v1/chat/completions`, as it was sent."""

    text: str | None = None
    tokens: list[TokenId] | None = None
    chat: msgspec.Raw = msgspec.Raw()


class KvOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which blocks are meant, and how long it may take.

    `tenant`: the place of an API key in its file, from 1. `everything`: of everybody.
    """

    timeout_s: float
    prompt: KvPrompt | None = None
    tenant: int | None = None
    all_tenants: bool = False
    everything: bool = False
    tier: str | None = None


class KvPlace(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the prompt's beginning is there. `tier` "any": of the store, wherever it lies."""

    tenant: int | None
    holder: str
    tier: str
    blocks: int
    tokens: int


class KvLookup(msgspec.Struct, frozen=True, kw_only=True):
    """Where a prompt is. `tokens` are all of it; only complete blocks are ever kept.

    `store`: see `KvStats`.
    """

    tokens: int
    blocks: int
    block_tokens: int
    store: str
    places: tuple[KvPlace, ...]


class KvDone(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order: of `asked` blocks (None: not so many were named) it was done to
    `blocks`, which have `tokens`. `note`: what was left out, and why; "" if nothing was."""

    op: str
    asked: int | None
    blocks: int
    tokens: int
    note: str = ""


class WorkerKv(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's own memory, in tokens. `cached`: kept in case a prompt begins with them."""

    worker: str
    role: Role
    cached_tokens: int
    held_tokens: int
    limit_tokens: int
    queried_tokens_total: int
    hit_tokens_total: int
    fetched_tokens_total: int


class HostStoreKv(msgspec.Struct, frozen=True, kw_only=True):
    """The store of another host than the gateway's. `store` and `tiers` as in `KvStats`."""

    host: str
    store: str
    tiers: tuple[dict[str, Any], ...]


class KvStats(msgspec.Struct, frozen=True, kw_only=True):
    """KV on all tiers at one moment.

    `store`: "ready", "starting" (it was never there yet), "away" or "off".

    `tiers` are the store's counts, `hosts` the stores of other hosts, `index` what the router knows
    of who holds what.
    """

    store: str
    tiers: tuple[dict[str, Any], ...]
    workers: tuple[WorkerKv, ...]
    index: dict[str, int]
    hosts: tuple[HostStoreKv, ...] = ()
