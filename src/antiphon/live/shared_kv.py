"""A worker's KV memory among others: a door for those who take, ways to those who have.

other workers ──► PeerPort ──► region, leases      (of other hosts: TLS, and PageServer or NIXL)
PeerPullPath ──► other workers          StoreClient ──► store ──► region
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from antiphon.adapters.nixl_memory import NixlMemory
from antiphon.core.handover import Owner
from antiphon.errors import BugError, PeerError
from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.tcp import PageServer
from antiphon.types import Config, StoreHello, WorkerInfo

from .kv_exchange import Exchange
from .kv_listeners import KvListeners
from .kv_pages import MappedPages, OwnersPages
from .network import Address, WorkerDoor
from .nixl_pages import NixlPages
from .part_loader import PartLoader
from .peer_port import PeerPort, TakenLeases
from .peer_pull_path import PeerPullPath
from .socket_folder import data_socket, store_socket
from .staged_region import StagedRegion
from .store_client import StoreClient
from .store_session import StoreAccess
from .tcp_pages import TcpPages

_READERS = 8
"""Pulls from other hosts that are under way at once."""


class SharedKv:
    """`exchange` is what the worker gets; `info` says who it is now. From `open` to `close`."""

    def __init__(
        self,
        region: OwnedRegion,
        heard: KvListeners,
        info: Callable[[], WorkerInfo],
        *,
        config: Config,
        folder: Path,
        layers: int = 1,
        door: WorkerDoor | None = None,
    ) -> None:
        """`layers`: the model's, of which a page of the region is a run in equal parts. `door`:
        where workers of other hosts reach this one, if any can."""
        self._door = door
        self._region = region
        self._info = info
        self._folder = folder
        self._copying = ThreadPoolExecutor(1, thread_name_prefix="kv-copy")
        self._reading = ThreadPoolExecutor(_READERS, thread_name_prefix="kv-read")
        self._closing = ThreadPoolExecutor(1, thread_name_prefix="kv-close")
        self._loader = PartLoader(region) if isinstance(region, StagedRegion) else None
        self._pull_timeout_s = config.cluster.lease_ttl_s
        self._nixl: NixlMemory | None = None
        self._path = PeerPullPath(
            info, self._address, self._pages, clock=time.monotonic, nixl=self._by_nixl
        )
        self._store: StoreClient | None = None
        self._port: PeerPort | None = None
        access = None
        if (socket := store_socket(folder, config.store)) is not None:
            self._store = StoreClient(
                socket,
                self._hello,
                region,
                self._copying,
                clock=time.monotonic,
                heartbeat_s=config.cluster.heartbeat_s,
                lost_after_s=config.cluster.lost_after_s,
            )
            access = StoreAccess(
                session=self._store.session,
                settled=self._store.settled,
                on_session=self._store.on_session,
                heard=heard,
                fetch_timeout_s=config.store.fetch_timeout_s,
                pace_s=config.cluster.heartbeat_s,
                layers=layers,
                layer_groups=config.store.layer_groups,
            )
        self.exchange = Exchange(pages=region, path=self._path, store=access)

    @contextlib.asynccontextmanager
    async def open(self, leases: TakenLeases) -> AsyncIterator[None]:
        """While it lasts, other workers reach this one's leases and memory, and it the store.

        The door is closed at its end, or when it can't begin. Raises `UsageError`: a port or a
        socket that can't be had, or NIXL that is not there.
        """
        async with contextlib.AsyncExitStack() as until_end:
            port = self._port = PeerPort(
                data_socket(self._folder, self._info().id),
                owner=self._info,
                descriptor=self._region.fd,
                leases=leases,
                clock=time.monotonic,
            )
            if (door := self._door) is not None:
                for listener in door.listeners:
                    until_end.callback(listener.close)
                if self._by_nixl:
                    self._nixl = await asyncio.to_thread(NixlMemory, self._region)
                    until_end.push_async_callback(asyncio.to_thread, self._nixl.close)
                server = PageServer(
                    self._region,
                    door.data,
                    must_seal=door.reach.network.encrypt_kv,
                    setting=door.data_setting,
                )
                until_end.push_async_callback(asyncio.to_thread, server.close)
                memory = None if self._nixl is None else self._nixl.access
                port.open_to_hosts(door.listeners, door.reach.server, server, memory)
            until_end.push_async_callback(port.close)
            await port.start()
            if self._store is not None:
                self._store.start()
            yield

    async def settled(self) -> None:
        """Return when the first attempt to use the store has ended, or takes too long."""
        if self._store is not None:
            await self._store.settled()

    def new_life(self) -> None:
        """The worker has another incarnation now: what others were told is over."""
        self._path.new_life()
        if self._port is not None:
            self._port.new_life()
        if self._store is not None:
            self._store.new_life()

    async def close(self) -> None:
        """The worker is closed: leave all others, and wait until nothing is copied any more."""
        if self._store is not None:
            await self._store.close()
        self._path.close()
        for threads in (self._copying, self._closing, self._reading):
            await asyncio.to_thread(threads.shutdown)
        if self._loader is not None:
            await asyncio.to_thread(self._loader.close)

    def _address(self, owner: Owner) -> Address:
        """Where the owner is asked. Raises `PeerError`: not from here."""
        if self._near(owner):
            return data_socket(self._folder, owner.worker)
        if self._door is None or owner.at is None:
            raise PeerError(f"owner {owner.worker} is on another host, and this one is alone")
        return self._door.reach.at(owner.at)

    def _pages(self, owner: Owner) -> OwnersPages:
        if self._near(owner):
            return MappedPages(owner.worker, self._region, self._copying)
        timeout_s = self._pull_timeout_s
        tcp = TcpPages(
            owner.worker,
            self._region,
            self._reading,
            closing=self._closing,
            timeout_s=timeout_s,
            loader=self._loader,
        )
        if self._nixl is None:
            return tcp
        return NixlPages(
            owner.worker, self._nixl, tcp, self._reading, closing=self._closing, timeout_s=timeout_s
        )

    @property
    def _by_nixl(self) -> bool:
        """Whether memory of other hosts is read by NIXL, where it is offered."""
        return self._door is not None and self._door.reach.network.kv_transport == "nixl"

    def _near(self, owner: Owner) -> bool:
        """Whether the owner is on this host: then its memory is mapped."""
        here = None if self._door is None else self._door.reach.host
        return owner.at is None or owner.at.host == here

    def _hello(self) -> StoreHello:
        info = self._info()
        if info.kv is None:
            raise BugError(f"worker {info.id} shares KV that has no shape")
        return StoreHello(
            worker=info.id,
            incarnation=info.incarnation,
            kv=info.kv,
            identity=info.model.identity,
            numerics=info.model.numerics,
        )
