"""What an operator may ask about KV on all tiers, and have done with it.

order ──► KvNaming: keys ──┬──► the router's index: how much each worker has
                           └──► StoreAsk ──► the store; to look, those of other hosts too
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from antiphon.core.host_names import store_on
from antiphon.core.kv import entry_pages
from antiphon.core.router import Holdings
from antiphon.errors import ClientError, PeerError
from antiphon.live.gateway.kv_metrics import dropped_by_reason
from antiphon.types import (
    STORE,
    BlockKey,
    HostName,
    IndexCounts,
    KvConfig,
    Member,
    Seconds,
    StoreAnswer,
    StoreAsk,
    StoreOp,
    Tier,
    TierStats,
    WorkerId,
)

from .kv_naming import KvNaming, Named
from .kv_orders import HostStoreKv, KvDone, KvLookup, KvOrder, KvPlace, KvStats, WorkerKv

_STORES = (Tier.HOST, Tier.PEER, Tier.DISK, Tier.REMOTE)
_MOVED_TO = (Tier.HOST, Tier.DISK)
_NEED_PROMPT = frozenset((StoreOp.PIN, StoreOp.UNPIN, StoreOp.PREFETCH, StoreOp.MOVE))
ANY_TIER = "any"


class Index(Protocol):
    """What the router knows of who holds what."""

    @property
    def counts(self) -> IndexCounts:
        """What is in it."""
        ...

    def match(self, keys: Sequence[BlockKey]) -> Holdings:
        """How much of a prompt each worker has."""
        ...


class Store(Protocol):
    """The store, there or not."""

    @property
    def present(self) -> bool:
        """Whether it is there now."""
        ...

    @property
    def connections(self) -> int:
        """How often it came."""
        ...

    async def ask(self, ask: StoreAsk, timeout_s: Seconds) -> StoreAnswer:
        """Its answer, or `PeerError`."""
        ...


class KvDesk:
    """Raises `ClientError` for what can't be as asked, `PeerError` if the store fails at it.

    Without a `store` there is none, and only workers are looked at.
    """

    def __init__(
        self,
        naming: KvNaming,
        config: KvConfig,
        *,
        members: Callable[[], Sequence[Member]],
        index: Index,
        store: Store | None,
        hosts: Callable[[], Mapping[HostName, Store]] = dict,
    ) -> None:
        """`hosts`: the stores of other hosts."""
        self._naming = naming
        self._config = config
        self._members = members
        self._index = index
        self._store = store
        self._hosts = hosts

    async def stats(self, timeout_s: Seconds) -> KvStats:
        """Everything, now."""
        hosts = [
            HostStoreKv(host=host, store=_state(store), tiers=await _tiers(store, timeout_s))
            for host, store in sorted(self._hosts().items())
        ]
        return KvStats(
            store=_state(self._store),
            tiers=await _tiers(self._store, timeout_s),
            hosts=tuple(hosts),
            workers=tuple(self._worker(member) for member in self._members()),
            index=msgspec.to_builtins(self._index.counts),
        )

    async def lookup(self, order: KvOrder) -> KvLookup:
        """How much of a prompt each worker and each tier has. Looking keeps nothing longer."""
        if order.prompt is None:
            raise ClientError("lookup needs a prompt", field="prompt")
        _refuse(order, tier=True, everything=True)
        parties = self._naming.parties(order)
        ids = await self._naming.tokens(order.prompt)
        named = await self._naming.named(ids, parties)
        places: list[KvPlace] = []
        for one in named:
            places += self._on_workers(one)
        stores = {STORE: self._store} | {store_on(h): s for h, s in sorted(self._hosts().items())}
        for holder, store in stores.items():
            places += await self._in_store(holder, store, named, order.timeout_s)
        return KvLookup(
            tokens=len(ids),
            blocks=len(named[0].keys),
            block_tokens=self._naming.block_tokens,
            store=_state(self._store),
            places=tuple(places),
        )

    async def change(self, op: StoreOp, order: KvOrder) -> KvDone:
        """Have something done with blocks of the store; returns when it is done."""
        store = self._there()
        asks = await self._asks(op, order)
        deadline = asyncio.get_running_loop().time() + order.timeout_s
        blocks, notes = 0, dict[str, None]()
        for ask in asks:
            left_s = max(0.0, deadline - asyncio.get_running_loop().time())
            answer = await store.ask(ask, left_s)
            if answer.problem:
                raise ClientError(f"the store did not {op}: {answer.problem}", status=409)
            blocks += answer.blocks
            notes |= {answer.note: None} if answer.note else {}
        return KvDone(
            op=op.value,
            asked=sum(len(ask.keys) for ask in asks) if order.prompt is not None else None,
            blocks=blocks,
            tokens=blocks * self._naming.block_tokens,
            note="; ".join(notes),
        )

    async def _asks(self, op: StoreOp, order: KvOrder) -> list[StoreAsk]:
        """What the store is asked. One without keys is about all that a tenant, or anybody, has:
        never what a prompt came to."""
        tier = _tier_of(op, order)
        if order.prompt is None:
            if op in _NEED_PROMPT:
                raise ClientError(f"{op} needs a prompt", field="prompt")
            if order.everything or op is StoreOp.VERIFY:
                _refuse(order, tenant=True)
                return [StoreAsk(op=op)]
            if order.tenant is None and not order.all_tenants:
                raise ClientError(f"say what to {op}: a prompt, a tenant, or everything")
            tenants = dict.fromkeys(party.tenant for party in self._naming.parties(order))
            return [StoreAsk(op=op, tenant=tenant) for tenant in tenants]
        _refuse(order, everything=True)
        parties = self._naming.parties(order)
        ids = await self._naming.tokens(order.prompt)
        return [
            StoreAsk(op=op, keys=one.keys, tenant=one.party.tenant, tier=tier)
            for one in await self._naming.named(ids, parties)
        ]

    # ── where ────────────────────────────────────────────────────────────────────────────────

    def _on_workers(self, named: Named) -> list[KvPlace]:
        held = self._index.match(named.keys).workers
        return [
            self._place(named, member.info.id, Tier.DEVICE, held.get(member.info.id, 0))
            for member in self._members()
            if member.info.model.numerics == named.party.numerics
        ]

    async def _in_store(
        self, holder: WorkerId, store: Store | None, named: Sequence[Named], timeout_s: Seconds
    ) -> list[KvPlace]:
        if store is None or not store.present:
            return []
        places: list[KvPlace] = []
        for one in named:
            ask = StoreAsk(op=StoreOp.LOOKUP, keys=one.keys, tenant=one.party.tenant)
            answer = await store.ask(ask, timeout_s)
            if answer.problem:
                raise PeerError(f"the store did not look: {answer.problem}")
            for tier in _STORES:
                blocks = _run(answer, lambda tiers, tier=tier: tier in tiers)
                if blocks or tier is Tier.HOST:
                    places.append(self._place(one, holder, tier, blocks))
            places.append(self._place(one, holder, ANY_TIER, _run(answer, bool)))
        return places

    def _place(self, named: Named, holder: str, tier: str, blocks: int) -> KvPlace:
        return KvPlace(
            tenant=named.party.place,
            holder=holder,
            tier=tier,
            blocks=blocks,
            tokens=blocks * self._naming.block_tokens,
        )

    def _worker(self, member: Member) -> WorkerKv:
        view, size = member.view, self._config.page_tokens
        size /= entry_pages(member.info.model.kv_groups)
        return WorkerKv(
            worker=member.info.id,
            role=member.info.role,
            cached_tokens=int(view.cached_pages * size),
            held_tokens=int(view.held_pages * size),
            limit_tokens=int(view.total_pages * size),
            queried_tokens_total=view.prefix_queried_tokens_total,
            hit_tokens_total=view.prefix_hit_tokens_total,
            fetched_tokens_total=view.fetched_tokens_total,
        )

    def _there(self) -> Store:
        if self._store is None:
            raise ClientError(
                "this server runs without a KV store: start it with --store on", status=409
            )
        return self._store


def _state(store: Store | None) -> str:
    if store is None:
        return "off"
    if store.present:
        return "ready"
    return "away" if store.connections else "starting"


async def _tiers(store: Store | None, timeout_s: Seconds) -> tuple[dict[str, object], ...]:
    if store is None or not store.present:
        return ()
    answer = await store.ask(StoreAsk(op=StoreOp.STATS), timeout_s)
    return tuple(_tier(one) for one in answer.stats)


def _run(answer: StoreAnswer, there: Callable[[tuple[Tier, ...]], bool]) -> int:
    """How many of the first blocks are there, one after the other."""
    missing = (place for place, tiers in enumerate(answer.tiers) if not there(tiers))
    return next(missing, len(answer.tiers))


def _tier_of(op: StoreOp, order: KvOrder) -> Tier | None:
    if op is not StoreOp.MOVE:
        _refuse(order, tier=True)
        return None
    if order.tier not in _MOVED_TO:
        names = " or ".join(_MOVED_TO)
        raise ClientError(f"move needs the tier to move to: {names}", field="tier")
    return Tier(order.tier)


def _refuse(
    order: KvOrder, *, tier: bool = False, tenant: bool = False, everything: bool = False
) -> None:
    """Raise `ClientError` for what this order may not say: it would mean something else."""
    if tier and order.tier is not None:
        raise ClientError("only move takes a tier", field="tier")
    if tenant and (order.tenant is not None or order.all_tenants):
        raise ClientError(
            "without a prompt it is about the blocks of all tenants: leave the tenant out",
            field="tenant",
        )
    if everything and order.everything:
        raise ClientError("everything is for clear, without a prompt", field="everything")


def _tier(stats: TierStats) -> dict[str, object]:
    return {**msgspec.to_builtins(stats), "dropped": dropped_by_reason(stats)}
