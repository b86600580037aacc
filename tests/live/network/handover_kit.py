"""Two workers on two hosts, of which one takes KV of the other: for those who test how."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from link_kit import KV, worker_info
from network_kit import LOOPBACK, keys_of
from pull_kit import granted_pull

from antiphon.adapters.nixl_agent import Agent
from antiphon.adapters.nixl_memory import NixlMemory
from antiphon.core.handover import LeaseBook, Owner
from antiphon.live.kv_pages import OwnersPages
from antiphon.live.lease_desk import LeaseDesk
from antiphon.live.network import HostKeys, Reach, worker_door
from antiphon.live.nixl_pages import NixlPages
from antiphon.live.peer_port import PeerPort
from antiphon.live.peer_pull_path import PeerPullPath
from antiphon.live.tcp_pages import TcpPages
from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.tcp import PageServer
from antiphon.types import NetworkConfig, Pull


def reach(keys: HostKeys) -> Reach:
    network = NetworkConfig(keys=str(keys.folder), addresses=(LOOPBACK,))
    return Reach(keys, network, keys.server(), keys.client())


class Handover:
    """An owner on box1 with three sealed pages, and a taker on box2. Use as `async with`."""

    def __init__(
        self,
        folder: Path,
        *,
        taker: str = "box2.d0",
        seal: bool = True,
        nixl: tuple[Agent | None, Agent | None] = (None, None),
    ) -> None:
        """`nixl`: the agents of owner and taker, of those that have one."""
        keys = folder / "keys"
        self.door = worker_door(reach(keys_of(keys, "box1")), 0)
        self.taker_reach = reach(keys_of(keys, "box2"))
        self.owner_info = replace(worker_info("p0", "p0-1"), at=self.door.at)
        self.taker_info = replace(worker_info(taker, "d0-1"), at=self.taker_reach.own(9))
        self.regions = OwnedRegion(KV), OwnedRegion(KV)
        self.offered, self.taking = (
            None if agent is None else NixlMemory(region, agent)
            for agent, region in zip(nixl, self.regions, strict=True)
        )
        self.book = LeaseBook(lambda pages: None, ttl_s=60.0)
        self.server = PageServer(self.regions[0], self.door.data, must_seal=seal)
        self.port = PeerPort(
            folder / "p0.data.sock",
            owner=lambda: self.owner_info,
            descriptor=self.regions[0].fd,
            leases=LeaseDesk(self.book, time.monotonic, lambda: None),
            clock=time.monotonic,
        )
        access = None if self.offered is None else self.offered.access
        self.port.open_to_hosts(self.door.listeners, self.door.reach.server, self.server, access)
        self.threads, self.closing = ThreadPoolExecutor(2), ThreadPoolExecutor(1)
        self.path = PeerPullPath(
            lambda: self.taker_info,
            self._address,
            self._pages,
            clock=time.monotonic,
            nixl=self.taking is not None,
            timeout_s=10.0,
        )

    def _address(self, owner: Owner):
        assert owner.at is not None
        return self.taker_reach.at(owner.at)

    def _pages(self, owner: Owner) -> OwnersPages:
        tcp = TcpPages(
            owner.worker, self.regions[1], self.threads, closing=self.closing, timeout_s=10.0
        )
        if self.taking is None:
            return tcp
        return NixlPages(
            owner.worker,
            self.taking,
            tcp,
            self.threads,
            closing=self.closing,
            timeout_s=10.0,
        )

    @property
    def owner(self) -> Owner:
        info = self.owner_info
        return Owner(worker=info.id, incarnation=info.incarnation, at=info.at)

    def page(self, side: int, number: int) -> np.ndarray:
        return self.regions[side].content.reshape(KV.pages, -1)[number]

    def pull(self) -> Pull:
        return granted_pull(self.regions[0], self.book, self.owner_info, self.taker_info)

    async def __aenter__(self) -> "Handover":
        await self.port.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.path.close()
        await self.port.close()
        await asyncio.get_running_loop().run_in_executor(None, self.closing.shutdown)
        await asyncio.get_running_loop().run_in_executor(None, self.server.close)
        self.threads.shutdown()
        for region in self.regions:
            region.close()
