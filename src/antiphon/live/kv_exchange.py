"""All ways of a worker's KV: what it has computed goes to others, what others have comes here.

Prefilled ──► Sealing ──► Offer                       other workers: `Exchange.pages`
Pull ──► PageCopier ──► PullEnded ──► pulled          `Exchange.path`
BlockStored ──► WriteBack ──► Put                     the store: `Exchange.store`
a session begins ──► PoolOffer ──► WriteBack
Fetch ──► StoreFetch ──► FetchEnded ──► fetched
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from antiphon.core.handover import LeaseBook, PullEnded
from antiphon.core.scheduler import Scheduler
from antiphon.types import (
    Awaited,
    BlockKey,
    BlockStored,
    ComingKv,
    Fetched,
    Prefilled,
    Pulled,
    RequestId,
    SchedulerEvent,
    Seconds,
    StepPlan,
    WorkerInfo,
    WorkerView,
)
from antiphon.wire import QuietLog

from .layer_gates import group_starts, parts_of
from .page_copier import PageCopier
from .pool_offer import PoolOffer, blocks_a_slice
from .pull_path import PullPath, SealedPages
from .sealing import Sealing
from .store_fetch import Arriving, FetchEnded, LayerGroups, StoreFetch
from .store_session import StoreAccess, StoreSession
from .write_back import WriteBack

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What a worker needs to give its KV to others, and to take theirs. Without `store` it has
    nothing to do with one."""

    pages: SealedPages
    path: PullPath
    store: StoreAccess | None = None

    def at_once(self) -> "Exchange":
        """The same, for an engine that can't begin before all layers are here."""
        store = self.store
        return self if store is None else replace(self, store=replace(store, layer_groups=1))


class KvExchange:
    """What is under way, by attempt. All on the event loop.

    `on_events` gets what has happened: offers, or ends of what could not be offered, and the
    scheduler's word about what has come; `on_broken` what broke a law.
    """

    def __init__(
        self,
        exchange: Exchange,
        scheduler: Scheduler,
        leases: LeaseBook,
        info: Callable[[], WorkerInfo],
        *,
        clock: Callable[[], Seconds],
        on_events: Callable[[Sequence[SchedulerEvent]], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._on_events = on_events
        self._quiet = QuietLog(_log, clock)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"seal-{info().id}")
        self._sealing = Sealing(
            exchange.pages, leases, info, self._threads, on_made=on_events, on_broken=on_broken
        )
        self._copier = PageCopier(
            exchange.path,
            lease_ttl_s=leases.ttl_s,
            clock=clock,
            on_end=self._pulled,
            on_broken=on_broken,
        )
        self._write_back: WriteBack | None = None
        self._pool_offer: PoolOffer | None = None
        self._fetch: StoreFetch | None = None
        self._session: Callable[[], StoreSession | None] = lambda: None
        self._awaited: Sequence[BlockKey] = ()
        """Of the fetch that the outstanding step awaits."""
        if (store := exchange.store) is not None:
            self._session = store.session
            self._write_back = WriteBack(exchange.pages, store.session)
            store.heard.add(self._write_back.heard)
            self._pool_offer = PoolOffer(
                self._write_back,
                scheduler.named_blocks,
                self._exact_block,
                slice_blocks=blocks_a_slice(_block_bytes(info())),
                pace_s=store.pace_s,
                on_broken=on_broken,
            )
            store.on_session(self._pool_offer.session_began)
            self._fetch = StoreFetch(
                store.session,
                store.settled,
                timeout_s=store.fetch_timeout_s,
                clock=clock,
                on_end=self._fetched,
                on_broken=on_broken,
                layers=self._layer_groups(store, info()),
            )

    def __len__(self) -> int:
        """How much is under way."""
        fetches = 0 if self._fetch is None else len(self._fetch)
        return len(self._sealing) + len(self._copier) + fetches

    @property
    def fetches(self) -> bool:
        """Whether there may be a store to fetch from."""
        return self._fetch is not None

    def counted(self, view: WorkerView) -> WorkerView:
        """The view with what this counts."""
        if self._write_back is None or self._fetch is None:
            return view
        return replace(
            view,
            put_blocks_total=self._write_back.put_blocks,
            put_dropped_blocks_total=self._write_back.dropped.total(),
            store_sessions=int(self._session() is not None),
            fetch_missed_blocks_total=self._fetch.missed.total(),
        )

    # ── to others ────────────────────────────────────────────────────────────────────────────

    def offer(self, prefilled: Prefilled) -> None:
        """Seal and offer what is computed."""
        self._sealing.begin(prefilled)

    def step_ended(self, events: Sequence[SchedulerEvent]) -> None:
        """Offer its blocks to the store, before anything else happens, but for those that came
        from there while it was computed; and say there what is in doubt if it failed."""
        awaited, self._awaited = self._awaited, ()
        if self._write_back is not None:
            self._write_back.forget(awaited)
            self._write_back.send()
        if awaited:
            self._warn(events)

    def abort_offer(
        self, id: RequestId, attempt: int, sequence: int | None
    ) -> tuple[int, ...] | None:
        """See `Sealing.abort`."""
        return self._sealing.abort(id, attempt, sequence)

    def abort_offers(self) -> Iterable[Prefilled]:
        """See `Sealing.abort_all`."""
        return self._sealing.abort_all()

    # ── from others ──────────────────────────────────────────────────────────────────────────

    def take(self) -> None:
        """Begin the pulls and the fetches that the scheduler wants."""
        for pull in self._scheduler.pulls():
            self._copier.begin(pull)
        if self._fetch is not None:
            for fetch in self._scheduler.fetches():
                self._fetch.begin(fetch)

    def stop(self, id: RequestId, attempt: int) -> None:
        """Nobody waits for the attempt's pages any more."""
        self._copier.cancel(id, attempt)
        if self._fetch is not None:
            self._fetch.cancel(id, attempt)

    def _pulled(self, ended: PullEnded) -> None:
        events = self._scheduler.pulled(
            ended.request, ended.attempt, ended.good, self._clock(), ended.problem, ended.seconds
        )
        self._came(events)

    def _exact_block(self, key: BlockKey) -> BlockStored | None:
        """Where a block of the cache lies; None: it is gone, or was decoded from lossy KV, which no
        store may take for the block itself."""
        if self._fetch is not None and key in self._fetch.lossy:
            return None
        return self._scheduler.named_block(key)

    def _fetched(self, ended: FetchEnded) -> None:
        events = self._scheduler.fetched(
            ended.request, ended.attempt, ended.good, self._clock(), ended.problem, ended.seconds
        )
        self._came(events)

    def _came(self, events: Sequence[SchedulerEvent]) -> None:
        """What it was for goes on. Who computed these blocks has put them."""
        if self._write_back is not None:
            self._write_back.forget()
        self._warn(events)
        self._on_events(events)

    def _warn(self, events: Sequence[SchedulerEvent]) -> None:
        for event in events:
            match event:
                case Pulled() | Fetched() if event.missing_tokens:
                    self._quiet.warning(
                        "the KV of %d tokens of request %s can't be %s and is computed here: %s",
                        event.missing_tokens,
                        event.request,
                        "pulled" if isinstance(event, Pulled) else "fetched",
                        event.problem,
                    )
                case _:
                    pass

    # ── layer by layer ───────────────────────────────────────────────────────────────────────

    def coming(self, plan: StepPlan) -> ComingKv | None:
        """What a step that begins now is to wait behind, if anything."""
        if (awaits := plan.awaits) is None:
            return None
        assert self._fetch is not None
        self._awaited = self._fetch.keys(awaits.request, awaits.attempt)
        return self._fetch.gates(awaits.request, awaits.attempt).waiting(awaits.wait_s)

    async def fetch_ended(self, awaits: Awaited) -> None:
        """Return when the scheduler knows what came of the fetch."""
        if self._fetch is not None:
            await self._fetch.ended(awaits.request, awaits.attempt)

    def _layer_groups(self, store: StoreAccess, info: WorkerInfo) -> LayerGroups | None:
        """How a fetch comes layer by layer; None: it does not."""
        page_bytes = 0 if info.kv is None else info.kv.page_bytes
        starts = group_starts(store.layers, page_bytes, store.layer_groups)
        if len(starts) < 2:
            return None
        parts = parts_of(starts, store.layers, page_bytes)
        return LayerGroups(starts=starts, parts=parts, on_arriving=self._arriving)

    def _arriving(self, arriving: Arriving) -> None:
        self._scheduler.arriving(
            arriving.request, arriving.attempt, arriving.here, arriving.groups, arriving.group_s
        )
        self._on_events(())

    async def close(self) -> None:
        """Wait until nothing is under way."""
        await self._sealing.close()
        await self._copier.close()
        if self._pool_offer is not None:
            await self._pool_offer.close()
        if self._fetch is not None:
            await self._fetch.close()
        self._threads.shutdown()


def _block_bytes(info: WorkerInfo) -> int:
    kv = info.kv
    return 0 if kv is None else kv.page_bytes * (kv.block_tokens // kv.page_tokens)
