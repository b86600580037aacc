"""The stores of other hosts than the gateway's, as it sees them.

A worker says where its host's store is; the gateway watches it there, over TLS, and what it holds
counts for workers of that host. A host whose workers are gone, and whose store is, is forgotten.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial

from antiphon.core.host_names import store_on
from antiphon.types import (
    ClusterConfig,
    HostName,
    HostPort,
    Incarnation,
    KvReplay,
    Seconds,
    TierStats,
    WorkerId,
    WorkerInfo,
)

from .kv_journal import KvNews
from .network import Reach
from .watched_store import WatchedStore


class HostStores:
    """`on_news` gets what a store holds, under its name and that of one life of its stream;
    `on_left` is called when all of that is void, `on_stats` when there are new counts."""

    def __init__(
        self,
        reach: Reach,
        config: ClusterConfig,
        *,
        on_news: Callable[[WorkerId, Incarnation, KvNews], KvReplay | None],
        on_left: Callable[[WorkerId], None],
        on_stats: Callable[[WorkerId, tuple[TierStats, ...]], None],
        clock: Callable[[], Seconds],
    ) -> None:
        self.watched: dict[HostName, WatchedStore] = {}
        """By host, in the order in which their first workers came."""
        self._reach = reach
        self._config = config
        self._on_news = on_news
        self._on_left = on_left
        self._on_stats = on_stats
        self._clock = clock
        self._gateway = Incarnation(secrets.token_hex(8))
        self._at: dict[HostName, HostPort] = {}
        self._wanted: dict[HostName, HostPort] = {}
        self._watching: dict[HostName, asyncio.Task[None]] = {}
        self._news = asyncio.Event()

    def follow(self, workers: Sequence[WorkerInfo]) -> None:
        """These are there now. What follows from it is done by `run`."""
        said = [worker.store for worker in workers if worker.store is not None]
        self._wanted = {at.host: at for at in said}
        self._news.set()

    async def run(self) -> None:
        """Watch them until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._forget_those_gone()
                    for host, at in self._wanted.items():
                        if self._at.get(host) != at:
                            self._begin(tasks, host, at)
                    await self._news.wait()
                    self._news.clear()
        finally:
            self.watched.clear()

    def _begin(self, tasks: asyncio.TaskGroup, host: HostName, at: HostPort) -> None:
        """Watch it there; no more where it was."""
        if (before := self._watching.pop(host, None)) is not None:
            before.cancel()
        store = store_on(host)
        self._at[host] = at
        watched = self.watched[host] = WatchedStore(
            self._reach.at(at),
            self._gateway,
            self._config,
            on_news=partial(self._on_news, store),
            on_left=lambda: self._left(store),
            on_stats=partial(self._on_stats, store),
            clock=self._clock,
        )
        self._watching[host] = tasks.create_task(watched.run(), name=f"store of {host}")

    def _left(self, store: WorkerId) -> None:
        self._on_left(store)
        self._news.set()

    def _forget_those_gone(self) -> None:
        gone = [host for host in self._at if host not in self._wanted]
        for host in gone:
            if not self.watched[host].present:
                self._watching.pop(host).cancel()
                del self.watched[host], self._at[host]
