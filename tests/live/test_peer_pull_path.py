"""Leases over real sockets and pages out of real shared memory, between two "workers" here."""

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from link_kit import KV, worker_info

from antiphon.core.handover import LeaseBook, Owner
from antiphon.errors import PeerError
from antiphon.live.lease_desk import LeaseDesk
from antiphon.live.peer_port import PeerPort
from antiphon.live.peer_pull_path import PeerPullPath
from antiphon.store.transfer import OwnedRegion
from antiphon.types import (
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    Offer,
    PagePull,
    Pull,
    RequestId,
    WorkerId,
)

LEASE, R = LeaseId("l"), RequestId("r")


class Handover:
    """An owner with three sealed pages under a granted lease, and the path of its taker."""

    def __init__(self, folder: Path) -> None:
        self.owner_info, self.taker_info = worker_info("p0", "p0-1"), worker_info("d0", "d0-1")
        self.regions = OwnedRegion(KV), OwnedRegion(KV)
        self.dropped: list[int] = []
        self.book = LeaseBook(self.dropped.extend, ttl_s=60.0)
        self.port = PeerPort(
            folder / "p0",
            owner=lambda: self.owner_info,
            descriptor=self.regions[0].fd,
            leases=LeaseDesk(self.book, time.monotonic, lambda: None),
            clock=time.monotonic,
        )
        self.threads = ThreadPoolExecutor(1)
        self.path = PeerPullPath(
            lambda: self.taker_info,
            self.regions[1],
            lambda worker: folder / worker,
            self.threads,
            clock=time.monotonic,
            timeout_s=10.0,
        )

    @property
    def owner(self) -> Owner:
        return Owner(worker=self.owner_info.id, incarnation=self.owner_info.incarnation)

    def page(self, side: int, number: int) -> np.ndarray:
        return self.regions[side].content.reshape(KV.pages, -1)[number]

    def pull(self) -> Pull:
        """Three pages of the owner's, to be had by whoever takes the lease."""
        region = self.regions[0]
        region.begin_write([2, 5, 3])
        for number in (2, 5, 3):
            self.page(0, number)[:] = np.random.default_rng(number).integers(0, 256, KV.page_bytes)
        pages = region.seal([2, 5, 3])
        self.book.offer(LEASE, R, 1, (2, 5, 3), time.monotonic())
        self.book.grant(LEASE, self.taker_info.incarnation, 1, time.monotonic())
        offer = Offer(
            request=R,
            attempt=1,
            lease=LEASE,
            ttl_s=60.0,
            owner=self.owner_info.id,
            incarnation=self.owner_info.incarnation,
            kv=KV,
            numerics="script",
            pages=pages,
            sequences=(),
        )
        targets = tuple(PagePull(*pair) for pair in zip(pages, (1, 0, 7), strict=True))
        return Pull(request=R, attempt=1, offer=offer, pages=targets)

    def mapped(self) -> int:
        gc.collect()  # regions of earlier tests
        return Path("/proc/self/maps").read_text().count("antiphon-kv")


@pytest.fixture
async def handover(tmp_path: Path) -> AsyncIterator[Handover]:
    one = Handover(tmp_path)
    tmp_path.chmod(0o700)
    await one.port.start()
    yield one
    one.path.close()
    await one.port.close()
    one.threads.shutdown()
    for region in one.regions:
        region.close()


async def test_take_copy_renew_acknowledge(handover: Handover) -> None:
    pull = handover.pull()
    assert await handover.path.take(handover.owner, LEASE, 1) == LeaseHeld(LEASE)
    assert await handover.path.copy(pull) == (True,) * 3
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
    assert await handover.path.copy(pull) == (True, False, True)


async def test_memory_outlives_its_owners_sockets(handover: Handover) -> None:
    pull = handover.pull()
    await handover.path.take(handover.owner, LEASE, 1)
    await handover.port.close()
    assert await handover.path.copy(pull) == (True,) * 3
    with pytest.raises(PeerError):
        await handover.path.acknowledge(handover.owner, LEASE, 1)


async def test_what_was_never_taken_cannot_be_copied(handover: Handover) -> None:
    with pytest.raises(PeerError, match="did not come"):
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
    assert handover.mapped() == before, "the memory of the old life is unmapped"


async def test_a_new_life_of_the_taker_introduces_itself_anew(handover: Handover) -> None:
    handover.pull()
    await handover.path.take(handover.owner, LEASE, 1)
    handover.taker_info = replace(handover.taker_info, incarnation=Incarnation("d0-2"))
    handover.path.new_life()
    foreign = LeaseRefused(LEASE, LeaseRefusal.FOREIGN)
    assert await handover.path.take(handover.owner, LEASE, 1) == foreign


async def test_nothing_is_left_open(handover: Handover) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before, mapped = descriptors(), handover.mapped()
    pull = handover.pull()
    for _ in range(5):
        await handover.path.take(handover.owner, LEASE, 1)
        await handover.path.copy(pull)
        handover.path.new_life()
    async with asyncio.timeout(30):
        while descriptors() > before or handover.port.peers:
            await asyncio.sleep(0.01)
    assert handover.mapped() == mapped
