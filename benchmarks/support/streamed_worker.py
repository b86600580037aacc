"""A worker with a real model beside a store, driven by hand: what a gateway's router would decide
is an argument, so that KV is fetched also where that is the worse choice.

It runs in the benchmark's process; its store is on another host's network, but its socket and its
memory are reached from here.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from antiphon.checkpoint import Checkpoint, open_checkpoint, resolve
from antiphon.live.loaded_engine import load_engine
from antiphon.live.shared_kv import SharedKv
from antiphon.live.watched_store import WatchedStore
from antiphon.live.worker import Worker
from antiphon.types import (
    BlockKey,
    BlockStored,
    Config,
    Event,
    Fetched,
    Incarnation,
    KvEvent,
    PageId,
    Request,
    RequestId,
    SamplingParams,
    SequenceEnded,
    Slo,
    StoreAsk,
    StoreOp,
    Tier,
    TokenGenerated,
    TokenId,
    WorkerId,
    WorkerInfo,
)

OUTPUT_TOKENS = 8
WAIT_S = 120.0
_NO_TARGET_S = 3600.0
_numbers = count()


@dataclass(frozen=True)
class Asked:
    """What came of one prompt. `fetched`: tokens whose KV came from the store."""

    ttft_s: float
    tokens: tuple[TokenId, ...]
    fetched: int
    problem: str
    levels: Mapping[str, int] = field(default_factory=dict)
    """Blocks that came from a peer, by level."""


@cache
def checkpoint_of(name: str) -> Checkpoint:
    return open_checkpoint(resolve(name))


class StreamedWorker:
    """One life, its cache empty. Made by `streamed_worker`."""

    def __init__(self, config: Config, folder: Path) -> None:
        self.loaded = load_engine(
            checkpoint_of(config.model.name), config, lambda line: None, shares_kv=True
        )
        assert self.loaded.region is not None
        self.keys: list[BlockKey] = []
        """Of the blocks that came to its cache, in order."""
        self.blocks: list[tuple[PageId, ...]] = []
        """Their pages."""
        self.loaded.heard.add(self._heard)
        number = next(_numbers)
        self._info = WorkerInfo(
            id=WorkerId(f"mixed-{number}"),
            incarnation=Incarnation(f"{number}"),
            model=self.loaded.info,
            max_model_len=self.loaded.max_model_len,
            kv=self.loaded.region.shape,
        )
        self.kv = SharedKv(
            self.loaded.region,
            self.loaded.heard,
            lambda: self.worker.info,
            config=config,
            folder=folder,
            layers=self.loaded.layers,
        )
        self.worker = Worker(
            self._info,
            self.loaded.scheduler,
            self.loaded.engine,
            clock=time.monotonic,
            exchange=self.kv.exchange,
        )
        self._reader = self.worker.events()

    async def ask(self, prompt: Sequence[TokenId], *, fetch: int, slo_s: float = 0.0) -> Asked:
        """The prompt's first tokens. `slo_s`: until the first; 0: as soon as can be."""
        asked = Request(
            id=RequestId(f"asked-{next(_numbers)}"),
            prompt=tuple(prompt),
            sampling=SamplingParams(max_tokens=OUTPUT_TOKENS, temperature=0.0, seed=0),
            slo=Slo(ttft_s=slo_s or 1e-3, tpot_s=_NO_TARGET_S),
        )
        events: list[Event] = []
        began, first_at = time.perf_counter(), 0.0
        await self.worker.add(asked, fetch=fetch)
        async with asyncio.timeout(WAIT_S):
            while not any(isinstance(one, SequenceEnded) for one in events):
                events += await anext(self._reader)
                if not first_at and any(isinstance(one, TokenGenerated) for one in events):
                    first_at = time.perf_counter()
        came: list[Any] = [one for one in events if isinstance(one, Fetched)]
        return Asked(
            ttft_s=first_at - began,
            tokens=tuple(one.token for one in events if isinstance(one, TokenGenerated)),
            fetched=sum(one.fetched_tokens for one in came),
            problem=next((one.problem for one in came if one.problem), ""),
        )

    def _heard(self, event: KvEvent) -> None:
        if isinstance(event, BlockStored):
            self.keys.append(event.key)
            self.blocks.append(event.pages)


@asynccontextmanager
async def streamed_worker(config: Config, folder: Path) -> AsyncIterator[StreamedWorker]:
    """Beside the store whose socket is in `folder`; connected, if there is one."""
    side = StreamedWorker(config, folder)
    try:
        async with side.worker, side.kv.open(side.worker.leases):
            await side.kv.settled()
            yield side
    finally:
        if side.loaded.commit is not None:
            side.loaded.commit.stop()
        await side.kv.close()
        assert side.loaded.region is not None
        side.loaded.region.close()


@asynccontextmanager
async def watched(path: Path, config: Config) -> AsyncIterator[WatchedStore]:
    """The store as an operator sees it."""
    store = WatchedStore(
        path,
        Incarnation(f"watch-{next(_numbers)}"),
        config.cluster,
        on_news=lambda _life, _news: None,
        on_left=lambda: None,
        clock=time.monotonic,
    )
    watching = asyncio.create_task(store.run())
    try:
        async with asyncio.timeout(WAIT_S):
            while not store.present:
                await asyncio.sleep(0.01)
        yield store
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def until_on(store: WatchedStore, keys: Sequence[BlockKey], tier: Tier) -> None:
    """Return when the store knows all of them on that tier."""
    ask = StoreAsk(op=StoreOp.LOOKUP, keys=tuple(keys))
    async with asyncio.timeout(WAIT_S):
        while not all(tier in tiers for tiers in (await store.ask(ask, WAIT_S)).tiers):
            await asyncio.sleep(0.02)


async def read_blocks(store: WatchedStore) -> Counter[str]:
    """How many blocks the store has read from peers so far, by level."""
    answer = await store.ask(StoreAsk(op=StoreOp.STATS), WAIT_S)
    levels = [level for tier in answer.stats for level in tier.levels]
    return Counter({level.level: level.read_blocks_total for level in levels})
