"""A worker with a real model and real memory, beside whatever store listens in its folder."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.core.config import build
from antiphon.live.loaded_engine import LoadedEngine, load_engine
from antiphon.live.shared_kv import SharedKv
from antiphon.live.worker import Worker
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_hf_folder
from antiphon.types import (
    Event,
    Fetched,
    Incarnation,
    Request,
    RequestId,
    SamplingParams,
    SequenceEnded,
    Stage,
    Started,
    TokenGenerated,
    TokenId,
    WorkerId,
    WorkerInfo,
)

BLOCK = 64
MEMORY = "1MiB"


def tiny_model(folder: Path) -> Path:
    """Pages of 16 tokens have 4 KiB; 4 of them are a block."""
    spec = replace(TINY_SPEC, context_len=1024)
    write_hf_folder(folder / "tiny", spec, random_tensors(spec, seed=1))
    return folder


def loaded(folder: Path, *, shares_kv: bool = True, **sections: Any) -> LoadedEngine:
    values = {
        "model": {"name": str(folder / "tiny")},
        "kv": {"memory_bytes": MEMORY},
        "engine": {"cache_dir": str(folder / "cache")},
        **sections,
    }
    config = build(values)
    checkpoint = open_checkpoint(resolve(config.model.name))
    return load_engine(checkpoint, config, lambda line: None, shares_kv=shares_kv)


def prompt(blocks: int, seed: int = 0) -> tuple[TokenId, ...]:
    """Some more tokens than so many blocks."""
    return tuple(3 + (seed * 7919 + at * 31 + at // 7) % 90 for at in range(blocks * BLOCK + 9))


def request(name: str, tokens: Sequence[TokenId], **changes: Any) -> Request:
    sampling = SamplingParams(max_tokens=8, temperature=0.0, seed=0, n=changes.pop("n", 1))
    made = Request(id=RequestId(name), prompt=tuple(tokens), sampling=sampling)
    return replace(made, **changes)


class StoreWorker:
    """One life of a worker. `fetch_timeout_s` is its deadline for fetches."""

    def __init__(
        self, folder: Path, name: str, *, fetch_timeout_s: float = 20.0, life: str = "1", **how: Any
    ) -> None:
        self.config = build(
            {
                "store": {
                    "fetch_timeout_s": fetch_timeout_s,
                    "lease_ttl_s": 100.0,
                    "enabled": how.pop("store", True),
                    "layer_groups": how.pop("layer_groups", 1),
                },
                "cluster": {"heartbeat_s": 0.05, "lost_after_s": how.pop("lost_after_s", 20.0)},
            }
        )
        sections = how.pop("sections", {})
        self.loaded = loaded(folder, store_pool=how.pop("pool", {}), **sections)
        self.region = self.loaded.region
        assert self.region is not None
        self.info = WorkerInfo(
            id=WorkerId(name),
            incarnation=Incarnation(f"{name}-{life}"),
            model=self.loaded.info,
            max_model_len=self.loaded.max_model_len,
            kv=self.region.shape,
        )
        self.kv = SharedKv(
            self.region,
            self.loaded.heard,
            lambda: self.worker.info,
            config=self.config,
            folder=folder,
            layers=self.loaded.layers,
        )
        self.worker = Worker(
            self.info,
            self.loaded.scheduler,
            self.loaded.engine,
            clock=asyncio.get_running_loop().time,
            exchange=self.kv.exchange,
            **how,
        )
        self.events: list[Event] = []
        self._reader = self.worker.events()

    @property
    def connected(self) -> bool:
        return self.kv._store is not None and self.kv._store.session() is not None

    async def ask(
        self, asked: Request, *, fetch: int = 0, stage: Stage = Stage.WHOLE
    ) -> tuple[tuple[TokenId, ...], ...]:
        """What the worker says to it, sequence by sequence."""
        await self.worker.add(asked, stage, fetch)
        return await self.answer(asked)

    async def answer(self, asked: Request) -> tuple[tuple[TokenId, ...], ...]:
        await self.until(lambda: len(self.of(asked, SequenceEnded)) == asked.sampling.n)
        return tuple(
            tuple(one.token for one in self.of(asked, TokenGenerated) if one.sequence == sequence)
            for sequence in range(asked.sampling.n)
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Read events until it holds."""
        async with asyncio.timeout(30):
            while not condition():
                self.events += await anext(self._reader)

    def of(self, asked: Request, kind: type) -> list[Any]:
        return [
            one
            for one in self.events
            if isinstance(one, kind) and one.request == asked.id and one.attempt == asked.attempt
        ]

    def fetched(self, asked: Request) -> Fetched:
        (one,) = self.of(asked, Fetched)
        return one

    def started(self, asked: Request) -> Started:
        (one,) = self.of(asked, Started)
        return one

    async def rest(self) -> None:
        """Law: what has ended has given everything back."""
        await asyncio.wait_for(self.worker.drain(), 30)
        view = self.worker.view()
        assert (view.running, view.waiting, view.pulling, view.leases) == (0, 0, 0, 0)
        assert view.held_pages == 0


@asynccontextmanager
async def store_worker(folder: Path, name: str = "w0", **how: Any) -> AsyncIterator[StoreWorker]:
    """From its start to its end, after which nothing is written to its memory."""
    async with AsyncExitStack() as until_end:
        side = StoreWorker(folder, name, **how)
        until_end.push_async_callback(side.kv.close)
        await until_end.enter_async_context(side.worker)
        await until_end.enter_async_context(side.kv.open(side.worker.leases))
        yield side


async def said_alone(
    folder: Path, asked: Request, fetch: int = 0, **sections: Any
) -> tuple[TokenId, ...]:
    """What a worker says that has its memory to itself, and nothing to do with a store."""
    one = loaded(folder, shares_kv=False, **sections)
    info = WorkerInfo(
        id=WorkerId("lone"),
        incarnation=Incarnation("lone-1"),
        model=one.info,
        max_model_len=one.max_model_len,
    )
    clock = asyncio.get_running_loop().time
    async with Worker(info, one.scheduler, one.engine, clock=clock) as worker:
        await worker.add(asked, Stage.WHOLE, fetch)
        tokens: list[TokenId] = []
        async for events in worker.events():
            tokens += [one.token for one in events if isinstance(one, TokenGenerated)]
            if any(isinstance(one, SequenceEnded) for one in events):
                break
        return tuple(tokens)
