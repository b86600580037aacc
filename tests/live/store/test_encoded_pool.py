"""Blocks that cross the network encoded, between real stores: right, or a miss; and what is lossy
stays where it was asked for (I51)."""

import asyncio
import math
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from encoded_kit import (
    CodedWorker,
    Side,
    content_at,
    encoded_pool,
    error_of,
    eventually_peers,
    numerics,
    patient,
    profile_file,
)
from pool_kit import free_ports, pool_table
from store_callers import NUMERICS, FakeGateway, FakeWorker, until
from store_kit import served

from antiphon.errors import PeerError, UsageError
from antiphon.live.store.pool import peer_reads
from antiphon.live.store.pool.block_coder import BlockCoder, Coding
from antiphon.live.store.pool.home_moves import HomeMoves
from antiphon.types import BlockKey, PlacedBlock, StoreName, StoreOp, StorePoolConfig, Tier

pytestmark = pytest.mark.timeout(120)
BLOCKS = 12
WORST = {"lossless": 0.0, "int8": 0.02, "int4": 0.2, "entropy-2": 0.2, "adaptive": 0.3}


@pytest.fixture(autouse=True)
def time_to_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is late, and what is not encoded in time comes as it is."""
    patient(monkeypatch)


@pytest.fixture
def nothing_goes_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is read because somebody looked for it."""

    def asked(self: HomeMoves, peer: object, blocks: tuple[PlacedBlock, ...]) -> None:
        pass

    monkeypatch.setattr(HomeMoves, "asked", asked)


def worst_error(got: list[bytes | None], seed: int = 0) -> float:
    errors = []
    for position, content in enumerate(got):
        assert content is not None
        errors.append(error_of(content, content_at(position, seed)))
    return max(errors)


@pytest.mark.usefixtures("nothing_goes_home")
@pytest.mark.parametrize("level", WORST)
async def test_a_level_brings_what_it_promises(folder: Path, level: str) -> None:
    profile = profile_file(folder) if level in ("entropy-2", "adaptive") else None
    async with encoded_pool(folder, level, profile=profile) as (a, b):
        keys = await a.worker.put(BLOCKS)
        await b.knows(keys)
        got, lossy = await b.worker.get_all(keys)
        assert worst_error(got) <= WORST[level]
        exact = {key for key, found in zip(keys, got, strict=True) if key not in lossy and found}
        assert all(got[keys.index(key)] == content_at(keys.index(key), 0) for key in exact)
        if level not in ("lossless", "adaptive"):
            assert lossy == set(keys)
        peers = await b.peers()
        assert peers.block_s is not None, "routers hear how long a block takes"
        assert 0.0 < peers.block_s < math.inf
        assert (await a.peers()).block_s is None, "it has read none"
        stats = {one.level: one for one in peers.levels}
        assert sum(one.read_blocks_total for one in stats.values()) >= BLOCKS
        if level != "adaptive":
            assert stats[level].read_blocks_total >= BLOCKS
        if level not in ("lossless", "adaptive"):  # a blob takes whole pages
            assert stats[level].read_bytes_total < BLOCKS * len(content_at(0, 0))


@pytest.mark.usefixtures("nothing_goes_home")
async def test_a_hot_block_is_encoded_once(folder: Path) -> None:
    """Five read it, at once and one after another, each anew."""
    async with encoded_pool(folder, "int8") as (a, b):
        keys = await a.worker.put(4)
        for _ in range(5):
            await b.knows(keys)
            await b.worker.get_all(keys)
            await b.gateway.ask(StoreOp.MOVE, keys, tier=Tier.HOST)
            await forgotten(b, keys)
        stats = {one.level: one for one in (await a.peers()).levels}
        assert stats["int8"].encoded_blocks_total <= len(keys) + 1


async def forgotten(side: Side, keys: list[BlockKey]) -> None:
    """Push what it has copied out of its memory, by other prompts of its own."""
    seed = 0
    while set(keys) & side.gateway.on(Tier.HOST):
        seed += 1
        await side.worker.put(16, seed=500 + seed)


@pytest.mark.usefixtures("nothing_goes_home")
async def test_what_came_lossy_is_nobody_elses(folder: Path) -> None:
    """Not of exact workers beside it, not of peers, not of its disk."""
    async with encoded_pool(folder, "int8", disk=True) as (a, b):
        keys = await a.worker.put(BLOCKS)
        await b.knows(keys)
        await b.worker.get_all(keys)
        assert set(keys) <= b.gateway.on(Tier.HOST)
        assert not set(keys) & b.gateway.on(Tier.DISK)
        await b.gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)
        assert not set(keys) & b.gateway.on(Tier.DISK), "asked for by name"
        async with CodedWorker(b.path, NUMERICS) as exact:
            located = await exact.ask(keys)
            assert located.blocks == (), "it asks for names that are not its own"
        a.worker.doubt(*keys)
        await a.gateway.until(lambda: not set(keys) & a.gateway.on(Tier.HOST))
        assert not set(keys) & a.gateway.on(Tier.PEER), "b has said that it has them"


async def test_an_exact_block_takes_the_place_of_a_lossy_copy_at_its_home(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home has read it lossy by the time it is asked to take it."""
    asked, late = HomeMoves.asked, list[tuple[HomeMoves, StoreName, Sequence[PlacedBlock]]]()

    def noted(self: HomeMoves, peer: StoreName, blocks: Sequence[PlacedBlock]) -> None:
        late.append((self, peer, blocks))

    monkeypatch.setattr(HomeMoves, "asked", noted)
    async with encoded_pool(folder, "int8") as (a, b):
        keys = await a.worker.put(BLOCKS)
        await b.knows(keys)
        _, lossy = await b.worker.get_all(keys)
        assert lossy == set(keys)
        await until(lambda: len({one.key for _, _, some in late for one in some} & set(keys)) > 0)
        monkeypatch.setattr(HomeMoves, "asked", asked)
        mine = [(moves, some) for moves, peer, some in late if peer == a.name]
        home = {one.key for _, some in mine for one in some} & set(keys)
        assert home

        def taken() -> bool:  # asked again where the copy is still being read
            for moves, some in mine:
                moves.asked(a.name, some)
            return home <= a.gateway.on(Tier.PEER)

        await until(taken)
        got, still_lossy = await b.worker.get_all(keys)
        assert still_lossy == set(keys) - home
        assert all(got[keys.index(key)] == content_at(keys.index(key), 0) for key in home)


@pytest.mark.usefixtures("nothing_goes_home")
async def test_exact_workers_of_a_lossy_pool_get_exact_blocks(folder: Path) -> None:
    async with (
        encoded_pool(folder, "int4") as (a, b),
        CodedWorker(a.path, NUMERICS) as one,
        CodedWorker(b.path, NUMERICS) as other,
    ):
        keys = await one.put(BLOCKS)
        assert not set(keys) & set(a.worker.keys(BLOCKS))
        await b.knows(keys)
        got, lossy = await other.get_all(keys)
        assert (got, lossy) == ([content_at(at, 0) for at in range(BLOCKS)], set())


@pytest.mark.usefixtures("nothing_goes_home")
async def test_a_damaged_blob_is_a_miss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages are what was lent: it is the blob that is wrong."""
    encode = BlockCoder.encode
    chance = np.random.default_rng(0)

    def damaged(self: BlockCoder, content: np.ndarray, level: str, start: int) -> bytes | None:
        data = bytearray(encode(self, content, level, start) or b"")
        data[int(chance.integers(len(data)))] ^= 1 << int(chance.integers(8))
        return bytes(data)

    monkeypatch.setattr(BlockCoder, "encode", damaged)
    async with encoded_pool(folder, "int8") as (a, b):
        keys = await a.worker.put(8)
        await b.knows(keys)
        assert (await b.worker.ask(keys)).blocks == ()
        stats = await eventually_peers(b, lambda stats: stats.levels)
        assert stats.levels[0].damaged_blocks_total > 0
        monkeypatch.setattr(BlockCoder, "encode", encode)
        again = await a.worker.put(8, seed=1)
        await b.knows(again)

        async def whole() -> bool:
            return len((await b.worker.ask(again)).blocks) == len(again)

        async with asyncio.timeout(30):
            while not await whole():  # a peer that was wrong is left alone for a while
                await asyncio.sleep(0.1)


@pytest.mark.usefixtures("nothing_goes_home")
async def test_who_encodes_too_long_lends_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its encoder hangs: the asker has what it asked for, and the peer has not failed."""
    encode, go = BlockCoder.encode, threading.Event()

    def hangs(self: BlockCoder, content: np.ndarray, level: str, start: int) -> bytes | None:
        assert go.wait(60)
        return encode(self, content, level, start)

    monkeypatch.setattr(peer_reads, "_CODING_PATIENCE", 1.0)
    monkeypatch.setattr(BlockCoder, "encode", hangs)
    async with encoded_pool(folder, "int8") as (a, b):
        try:
            keys = await a.worker.put(4)
            await b.knows(keys)
            got, lossy = await b.worker.get_all(keys)
            assert (got, lossy) == ([content_at(at, 0) for at in range(4)], set())
            [peer] = (await b.gateway.ask(StoreOp.STATS)).pool
            assert peer.failed_reads_total == 0
        finally:
            go.set()


@pytest.mark.usefixtures("nothing_goes_home")
async def test_what_is_better_computed_is_left(folder: Path) -> None:
    """A worker that computes in no time: the block that tells the peer's speed comes, no other."""
    async with encoded_pool(folder, "adaptive") as (a, b):
        keys = await a.worker.put(BLOCKS)
        await b.knows(keys)
        located = await b.worker.ask(keys, left_s=0.5, compute_s=0.0)
        assert len(located.blocks) <= 1
        assert (await b.peers()).computed_blocks_total == BLOCKS - len(located.blocks)
        await b.worker.get_all(keys, left_s=10.0, compute_s=3600.0)


async def test_a_profile_of_another_model_is_refused_by_name(folder: Path) -> None:
    path = profile_file(folder, identity=bytes(32))
    async with (
        served(
            folder,
            pool={
                **pool_table("a", free_ports(1)[0], []),
                "level": "entropy-1",
                "profile": str(path),
            },
        ) as socket,
        FakeGateway(socket),
    ):
        with pytest.raises(PeerError, match=r"kv\.profile: is of the model made up"):
            await CodedWorker(socket, numerics("entropy-1", profiled=True)).open()
        with pytest.raises(PeerError, match="can't be encoded: use raw"):
            await FakeWorker(socket).open()


def test_a_level_that_the_profile_lacks_is_refused_at_the_start(folder: Path) -> None:
    path = str(profile_file(folder))
    with pytest.raises(UsageError, match="has 3 entropy levels"):
        Coding.of(StorePoolConfig(level="entropy-5", profile=path))
