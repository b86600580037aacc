"""A worker takes KV of a worker on another host: leases over TLS, pages over TCP."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from link_kit import KV, worker_info
from network_kit import LOOPBACK, keys_of, make_keys
from pull_kit import LEASE, granted_pull

from antiphon.core.handover import LeaseBook, Owner
from antiphon.errors import PeerError
from antiphon.live.lease_desk import LeaseDesk
from antiphon.live.network import HostKeys, Reach, worker_door
from antiphon.live.peer_port import PeerPort
from antiphon.live.peer_pull_path import PeerPullPath
from antiphon.live.tcp_pages import TcpPages
from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.tcp import PageServer
from antiphon.types import (
    LeaseHeld,
    NetworkConfig,
    Pull,
    WorkerId,
)

pytestmark = pytest.mark.timeout(120)


def reach(keys: HostKeys) -> Reach:
    network = NetworkConfig(keys=str(keys.folder), addresses=(LOOPBACK,))
    return Reach(keys, network, keys.server(), keys.client())


class Handover:
    """An owner on box1 with three sealed pages, and a taker on box2. Use as `async with`."""

    def __init__(self, folder: Path, *, taker: str = "box2.d0", seal: bool = True) -> None:
        keys = folder / "keys"
        self.door = worker_door(reach(keys_of(keys, "box1")), 0)
        self.taker_reach = reach(keys_of(keys, "box2"))
        self.owner_info = replace(worker_info("p0", "p0-1"), at=self.door.at)
        self.taker_info = replace(worker_info(taker, "d0-1"), at=self.taker_reach.own(9))
        self.regions = OwnedRegion(KV), OwnedRegion(KV)
        self.book = LeaseBook(lambda pages: None, ttl_s=60.0)
        self.server = PageServer(self.regions[0], self.door.data, must_seal=seal)
        self.port = PeerPort(
            folder / "p0.data.sock",
            owner=lambda: self.owner_info,
            descriptor=self.regions[0].fd,
            leases=LeaseDesk(self.book, time.monotonic, lambda: None),
            clock=time.monotonic,
        )
        self.port.open_to_hosts(self.door.listeners, self.door.reach.server, self.server)
        self.threads, self.closing = ThreadPoolExecutor(2), ThreadPoolExecutor(1)
        self.path = PeerPullPath(
            lambda: self.taker_info,
            self._address,
            self._pages,
            clock=time.monotonic,
            timeout_s=10.0,
        )

    def _address(self, owner: Owner):
        assert owner.at is not None
        return self.taker_reach.at(owner.at)

    def _pages(self, owner: Owner) -> TcpPages:
        return TcpPages(
            owner.worker, self.regions[1], self.threads, closing=self.closing, timeout_s=10.0
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    make_keys(tmp_path / "keys", "box1", "box2")
    return tmp_path


@pytest.mark.parametrize("seal", [True, False])
async def test_pages_of_another_host_are_taken_and_copied(folder: Path, seal: bool) -> None:
    async with Handover(folder, seal=seal) as both:
        pull = both.pull()
        assert await both.path.take(both.owner, LEASE, 1) == LeaseHeld(LEASE)
        copied = await both.path.copy(pull)
        assert copied.good == (True, True, True), copied.problem
        for page in pull.pages:
            assert (both.page(0, page.source.page) == both.page(1, page.target)).all()
        assert await both.path.acknowledge(both.owner, LEASE, 1) == LeaseHeld(LEASE)


async def test_a_page_that_was_reassigned_meanwhile_is_a_miss(folder: Path) -> None:
    async with Handover(folder) as both:
        pull = both.pull()
        await both.path.take(both.owner, LEASE, 1)
        both.regions[0].begin_write([5])
        copied = await both.path.copy(pull)
        assert copied.good == (True, False, True)
        assert copied.problem


async def test_a_key_opens_nothing_after_the_stream_that_brought_it(folder: Path) -> None:
    """And the next stream brings the next key."""
    async with Handover(folder) as both:
        pull = both.pull()
        await both.path.take(both.owner, LEASE, 1)
        assert (await both.path.copy(pull)).good == (True, True, True)
        assert len(both.server.keys) == 1
        both.port.new_life("a hiccup")
        assert len(both.server.keys) == 0
        await both.path.take(both.owner, LEASE, 1)
        assert len(both.server.keys) == 1
        assert (await both.path.copy(pull)).good == (True, True, True)


@pytest.mark.parametrize("taker", ["box3.d0", "d0"])
async def test_a_host_takes_as_its_own_worker_alone(folder: Path, taker: str) -> None:
    async with Handover(folder, taker=taker) as both:
        both.pull()
        with pytest.raises(PeerError, match="not a worker on the host of its certificate"):
            await both.path.take(both.owner, LEASE, 1)
        assert len(both.server.keys) == 0


async def test_an_owner_that_is_over_is_gone(folder: Path) -> None:
    async with Handover(folder) as both:
        both.pull()
        dead = replace(both.owner, worker=WorkerId("p9"))
        answer = await both.path.take(dead, LEASE, 1)
        assert not isinstance(answer, LeaseHeld)
