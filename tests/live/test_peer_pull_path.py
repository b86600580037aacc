"""Leases over real sockets and pages out of real shared memory, between two "workers" here."""

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from link_kit import KV, until, worker_info
from peer_kit import open_descriptors
from pull_kit import LEASE, granted_pull

from antiphon.core.handover import LeaseBook, Owner
from antiphon.errors import PeerError
from antiphon.live import kv_pages, peer_pull_path
from antiphon.live.kv_pages import MappedPages
from antiphon.live.lease_desk import LeaseDesk
from antiphon.live.peer_port import PeerPort
from antiphon.live.peer_pull_path import KEPT_S, PeerPullPath
from antiphon.live.pull_path import Copied
from antiphon.live.socket_folder import data_socket
from antiphon.store.transfer import MappedRegion, OwnedRegion
from antiphon.types import (
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    Pull,
    WorkerId,
)


class Handover:
    """An owner with three sealed pages under a granted lease, and the path of its taker."""

    def __init__(self, folder: Path, kept_s: float = KEPT_S) -> None:
        self.owner_info, self.taker_info = worker_info("p0", "p0-1"), worker_info("d0", "d0-1")
        self.regions = OwnedRegion(KV), OwnedRegion(KV)
        self.dropped: list[int] = []
        self.book = LeaseBook(self.dropped.extend, ttl_s=60.0)
        self.folder = folder
        self.port = self.new_port()
        self.threads = ThreadPoolExecutor(1)
        self.path = PeerPullPath(
            lambda: self.taker_info,
            lambda owner: data_socket(folder, owner.worker),
            lambda owner: MappedPages(owner.worker, self.regions[1], self.threads),
            clock=time.monotonic,
            timeout_s=10.0,
            kept_s=kept_s,
        )

    def new_port(self) -> PeerPort:
        return PeerPort(
            data_socket(self.folder, self.owner_info.id),
            owner=lambda: self.owner_info,
            descriptor=self.regions[0].fd,
            leases=LeaseDesk(self.book, time.monotonic, lambda: None),
            clock=time.monotonic,
        )

    @property
    def owner(self) -> Owner:
        return Owner(worker=self.owner_info.id, incarnation=self.owner_info.incarnation)

    def page(self, side: int, number: int) -> np.ndarray:
        return self.regions[side].content.reshape(KV.pages, -1)[number]

    def pull(self) -> Pull:
        return granted_pull(self.regions[0], self.book, self.owner_info, self.taker_info)

    async def restart(self, life: str) -> None:
        """The owner's process dies, and another one has its name, its socket and new memory."""
        await self.port.close()
        self.regions[0].close()
        self.owner_info = replace(self.owner_info, incarnation=Incarnation(life))
        self.regions = OwnedRegion(KV), self.regions[1]
        self.book = LeaseBook(self.dropped.extend, ttl_s=60.0)
        self.port = self.new_port()
        await self.port.start()

    def mapped(self) -> int:
        gc.collect()  # regions of earlier tests
        return Path("/proc/self/maps").read_text().count("antiphon-kv")


@contextlib.asynccontextmanager
async def handing_over(folder: Path, kept_s: float = KEPT_S) -> AsyncIterator[Handover]:
    folder.chmod(0o700)
    one = Handover(folder, kept_s)
    await one.port.start()
    yield one
    one.path.close()
    await one.port.close()
    one.threads.shutdown()
    for region in one.regions:
        region.close()


@pytest.fixture
async def handover(tmp_path: Path) -> AsyncIterator[Handover]:
    async with handing_over(tmp_path) as one:
        yield one


async def test_take_copy_renew_acknowledge(handover: Handover) -> None:
    pull = handover.pull()
    assert await handover.path.take(handover.owner, LEASE, 1) == LeaseHeld(LEASE)
    assert await handover.path.copy(pull) == Copied((True,) * 3)
    for source, target in ((2, 1), (5, 0), (3, 7)):
        assert np.array_equal(handover.page(0, source), handover.page(1, target))
    other = LeaseId("other")
    assert set(await handover.path.renew(handover.owner, [LEASE, other])) == {
        LeaseHeld(LEASE),
        LeaseRefused(other, LeaseRefusal.GONE),
    }
    assert await handover.path.acknowledge(handover.owner, LEASE, 1) == LeaseHeld(LEASE)
    assert handover.dropped == [2, 5, 3]


async def test_a_page_that_was_reassigned_is_not_had(handover: Handover) -> None:
    """vLLM 21570: the decode side read recycled blocks and gave wrong tokens."""
    pull = handover.pull()
    await handover.path.take(handover.owner, LEASE, 1)
    handover.regions[0].begin_write([5])
    assert await handover.path.copy(pull) == Copied(
        (True, False, True), "pages were not what was offered: 1 stale"
    )


async def test_memory_outlives_its_owners_sockets(handover: Handover) -> None:
    pull = handover.pull()
    await handover.path.take(handover.owner, LEASE, 1)
    await handover.port.close()
    assert await handover.path.copy(pull) == Copied((True,) * 3)
    with pytest.raises(PeerError):
        await handover.path.acknowledge(handover.owner, LEASE, 1)


async def test_what_was_never_taken_cannot_be_copied(handover: Handover) -> None:
    with pytest.raises(PeerError, match="is not here"):
        await handover.path.copy(handover.pull())


async def test_another_life_of_an_owner_is_another_owner(handover: Handover) -> None:
    """vLLM 49238: after a restart under the same name stale metadata was used."""
    before = handover.mapped()
    pull = handover.pull()
    await handover.path.take(handover.owner, LEASE, 1)
    await handover.path.copy(pull)
    assert handover.mapped() == before + 1
    handover.owner_info = replace(handover.owner_info, incarnation=Incarnation("p0-2"))
    handover.port.new_life()
    dead = Owner(worker=WorkerId("p0"), incarnation=Incarnation("p0-1"))
    gone = LeaseRefused(LEASE, LeaseRefusal.GONE)
    assert await handover.path.take(dead, LEASE, 1) == gone
    assert await handover.path.take(handover.owner, LeaseId("x"), 1) == LeaseRefused(
        LeaseId("x"), LeaseRefusal.GONE
    )
    await until(lambda: handover.mapped() == before)  # the memory of the old life is unmapped


async def test_a_new_life_of_the_taker_introduces_itself_anew(handover: Handover) -> None:
    handover.pull()
    await handover.path.take(handover.owner, LEASE, 1)
    handover.taker_info = replace(handover.taker_info, incarnation=Incarnation("d0-2"))
    handover.path.new_life()
    foreign = LeaseRefused(LEASE, LeaseRefusal.FOREIGN)
    assert await handover.path.take(handover.owner, LEASE, 1) == foreign


async def test_nothing_is_left_open(handover: Handover) -> None:
    before, mapped = open_descriptors(), handover.mapped()
    pull = handover.pull()
    for _ in range(5):
        await handover.path.take(handover.owner, LEASE, 1)
        await handover.path.copy(pull)
        handover.path.new_life()
    await until(lambda: open_descriptors() <= before and not handover.port.peers)
    await until(lambda: handover.mapped() == mapped)


async def test_an_owner_that_starts_again_and_again_leaves_nothing(handover: Handover) -> None:
    before, mapped = open_descriptors(), handover.mapped()
    for number in range(50):
        await handover.restart(f"p0-{number}")
        pull = handover.pull()
        assert await handover.path.take(handover.owner, LEASE, 1) == LeaseHeld(LEASE)
        assert await handover.path.copy(pull) == Copied((True,) * 3)
    assert len(handover.path) == 1
    await until(lambda: handover.mapped() == mapped + 1)
    handover.path.close()
    await until(lambda: open_descriptors() <= before and not handover.port.peers)
    await until(lambda: handover.mapped() == mapped)


async def test_memory_of_an_owner_that_went_away_is_given_back(tmp_path: Path) -> None:
    """A dead worker's memory would stay taken, beside that of its next process."""
    async with handing_over(tmp_path, kept_s=0.01) as handover:
        before, mapped = open_descriptors(), handover.mapped()
        pull = handover.pull()
        await handover.path.take(handover.owner, LEASE, 1)
        await handover.path.copy(pull)
        assert handover.mapped() == mapped + 1
        await handover.port.close()
        await until(lambda: len(handover.path) == 0)
        await until(lambda: handover.mapped() == mapped)
        await until(lambda: open_descriptors() <= before)
        with pytest.raises(PeerError, match="is not here"):
            await handover.path.copy(pull)


class Slow(MappedRegion):
    """A region so large that mapping and unmapping take until they are let."""

    let_map, let_unmap = threading.Event(), threading.Event()
    busy = threading.Event()

    def __init__(self, fd: int, own: OwnedRegion) -> None:
        self._wait(self.let_map)
        super().__init__(fd, own)

    def close(self) -> None:
        self._wait(self.let_unmap)
        super().close()

    def _wait(self, let: threading.Event) -> None:
        self.busy.set()
        assert let.wait(30)
        self.busy.clear()


@pytest.mark.timeout(60)
async def test_the_event_loop_waits_for_no_memory(handover: Handover, monkeypatch) -> None:
    """With much memory an owner's death made its taker silent for so long that it was lost too."""
    monkeypatch.setattr(kv_pages, "MappedRegion", Slow)
    for event in (Slow.let_map, Slow.let_unmap, Slow.busy):
        event.clear()
    mapped = handover.mapped()
    pull = handover.pull()
    await handover.path.take(handover.owner, LEASE, 1)
    copying = asyncio.create_task(handover.path.copy(pull))
    await until(Slow.busy.is_set)
    handover.port.new_life()
    await until(lambda: not handover.port.peers)
    await handover.path.take(handover.owner, LEASE, 1)  # connects anew
    handover.path.new_life()
    assert not copying.done()
    Slow.let_map.set()
    assert await copying == Copied((True,) * 3), "what was begun before is carried out"
    await until(Slow.busy.is_set)
    assert handover.mapped() == mapped + 1
    await handover.path.take(handover.owner, LEASE, 1)
    Slow.let_unmap.set()
    await until(lambda: handover.mapped() == mapped)


async def test_an_owner_whose_stream_came_back_is_kept(tmp_path: Path, monkeypatch) -> None:
    looked = asyncio.Event()
    look = PeerPullPath._forget_if_away

    def forget_if_away(path: PeerPullPath, peer: Any) -> None:
        look(path, peer)
        looked.set()

    monkeypatch.setattr(PeerPullPath, "_forget_if_away", forget_if_away)
    async with handing_over(tmp_path, kept_s=0.05) as handover:
        mapped = handover.mapped()
        pull = handover.pull()
        await handover.path.take(handover.owner, LEASE, 1)
        await handover.path.copy(pull)
        handover.port.new_life()  # ends the stream; the owner's life goes on
        await until(lambda: not handover.port.peers)
        assert await handover.path.take(handover.owner, LEASE, 1) == LeaseHeld(LEASE)
        await asyncio.wait_for(looked.wait(), 30)
        assert await handover.path.copy(pull) == Copied((True,) * 3)
        assert handover.mapped() == mapped + 1


async def test_a_late_copy_does_not_push_out_the_owners_new_life(handover: Handover) -> None:
    late = handover.pull()
    await handover.path.take(handover.owner, LEASE, 1)
    await handover.restart("p0-2")
    pull = handover.pull()
    await handover.path.take(handover.owner, LEASE, 1)
    with pytest.raises(PeerError, match="is not here"):
        await handover.path.copy(late)
    assert await handover.path.copy(pull) == Copied((True,) * 3)


async def test_what_is_no_name_is_no_path(handover: Handover) -> None:
    for name in ("../p0", "/tmp/p0", "a/b"):
        stranger = Owner(worker=WorkerId(name), incarnation=Incarnation("a"))
        with pytest.raises(PeerError, match="no worker's name"):
            await handover.path.take(stranger, LEASE, 1)
    assert len(handover.path) == 0


async def test_so_many_owners_and_no_more(handover: Handover, monkeypatch) -> None:
    monkeypatch.setattr(peer_pull_path, "MAX_OWNERS", 1)
    handover.pull()
    await handover.path.take(handover.owner, LEASE, 1)
    other = Owner(worker=WorkerId("p1"), incarnation=Incarnation("a"))
    with pytest.raises(PeerError, match="1 owners"):
        await handover.path.take(other, LEASE, 1)
    assert await handover.path.take(handover.owner, LEASE, 1) == LeaseHeld(LEASE)
