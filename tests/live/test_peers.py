"""One client for each owner, of the life that was met last."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from link_kit import until, worker_info
from peer_kit import Owner, open_descriptors

from antiphon.errors import PeerError
from antiphon.live import peers as peers_module
from antiphon.live.peers import Peers
from antiphon.types import (
    Incarnation,
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    WorkerId,
)

pytestmark = pytest.mark.timeout(60)
LEASE = LeaseId("lease")
P0, P1 = WorkerId("p0"), WorkerId("p1")


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path


class Met:
    """A taker and what memories it got."""

    def __init__(self, folder: Path) -> None:
        self.info = worker_info("d0", "d0-1")
        self.memories: list[tuple[WorkerId, Incarnation]] = []
        self.peers = Peers(
            folder,
            taker=lambda: self.info,
            on_memory=self._got,
            clock=time.monotonic,
            timeout_s=10.0,
        )

    def _got(self, owner: WorkerId, life: Incarnation, descriptor: int, kv: KvShape) -> None:
        self.memories.append((owner, life))
        os.close(descriptor)


async def test_each_owner_is_its_own(folder: Path) -> None:
    met = Met(folder)
    async with Owner(folder, "p0", "a") as one:
        one.leases.granted[LEASE] = (met.info.incarnation, 1)
        client = met.peers.of(P0, Incarnation("a"))
        assert client is met.peers.of(P0, Incarnation("a"))
        with pytest.raises(PeerError):
            await met.peers.of(P1, Incarnation("b")).take(LEASE, 1)
        assert await client.take(LEASE, 1) == LeaseHeld(LEASE)
        assert met.memories == [(P0, "a")]
        met.peers.close()
        assert len(met.peers) == 0
        with pytest.raises(PeerError):
            await client.take(LEASE, 1)


async def test_a_new_life_takes_the_place_of_the_old(folder: Path) -> None:
    met = Met(folder)
    async with Owner(folder, "p0", "a") as owner:
        owner.leases.granted[LEASE] = (met.info.incarnation, 1)
        old = met.peers.of(P0, Incarnation("a"))
        await old.take(LEASE, 1)
        owner.info = replace(owner.info, incarnation=Incarnation("b"))
        owner.port.new_life()
        assert await old.take(LEASE, 1) == LeaseRefused(LEASE, LeaseRefusal.GONE)
        new = met.peers.of(P0, Incarnation("b"))
        assert await new.take(LEASE, 1) == LeaseHeld(LEASE)
        assert met.memories == [(P0, "a"), (P0, "b")]
        assert len(met.peers) == 1
        met.peers.close()


async def test_the_takers_own_new_life_is_another_taker(folder: Path) -> None:
    met = Met(folder)
    async with Owner(folder, "p0", "a") as owner:
        owner.leases.granted[LEASE] = (met.info.incarnation, 1)
        await met.peers.of(P0, Incarnation("a")).take(LEASE, 1)
        met.peers.close()
        met.info = replace(met.info, incarnation=Incarnation("d0-2"))
        answer = await met.peers.of(P0, Incarnation("a")).take(LEASE, 1)
        assert answer == LeaseRefused(LEASE, LeaseRefusal.FOREIGN)
        met.peers.close()


async def test_owners_that_come_and_go_leave_nothing_behind(folder: Path) -> None:
    met = Met(folder)
    before = open_descriptors()
    for number in range(20):
        async with Owner(folder, "p0", f"life-{number}"):
            await met.peers.of(P0, Incarnation(f"life-{number}")).renew([LEASE])
    met.peers.close()
    assert len(met.memories) == 20
    await until(lambda: open_descriptors() <= before)


def test_what_is_no_name_is_no_path(folder: Path, monkeypatch) -> None:
    met = Met(folder)
    for name in ("../p0", "/tmp/p0", "a/b"):
        with pytest.raises(PeerError, match="no worker's name"):
            met.peers.of(WorkerId(name), Incarnation("a"))
    monkeypatch.setattr(peers_module, "MAX_OWNERS", 1)
    met.peers.of(P0, Incarnation("a"))
    with pytest.raises(PeerError, match="1 owners"):
        met.peers.of(P1, Incarnation("a"))
    met.info = replace(met.info, kv=None)
    with pytest.raises(PeerError, match="exchanges no KV"):
        met.peers.of(P0, Incarnation("b"))
