"""Two stores of a pool that are set to different levels: blocks come, and both sides say how."""

from pathlib import Path

import pytest
from encoded_kit import BLOCK_BYTES, Side, content_at, encoded_pool, patient, profile_file
from pool_kit import free_ports, pool_table
from store_callers import IDENTITY
from store_kit import served

from antiphon.live.store.pool.home_moves import HomeMoves
from antiphon.types import PlacedBlock, PoolPeer, StoreOp

pytestmark = pytest.mark.timeout(120)
BLOCKS = 8


@pytest.fixture(autouse=True)
def only_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes home, and a busy machine has all the time to encode."""

    def asked(self: HomeMoves, peer: object, blocks: tuple[PlacedBlock, ...]) -> None:
        pass

    monkeypatch.setattr(HomeMoves, "asked", asked)
    patient(monkeypatch)


async def seen_by(side: Side) -> PoolPeer:
    [peer] = (await side.gateway.ask(StoreOp.STATS)).pool
    return peer


async def test_one_side_set_to_a_level_reads_as_it_is_and_both_say_why(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with encoded_pool(folder, "int8", there="raw") as (a, b):
        keys = await b.worker.put(BLOCKS)
        await a.knows(keys)
        got, lossy = await a.worker.get_all(keys)
        assert (got, lossy) == ([content_at(at, 0) for at in range(BLOCKS)], set())
        one, other = await seen_by(a), await seen_by(b)
        assert (one.level, other.level) == ("raw", "raw")
        assert (
            one.level_problem == "store_pool.level is int8 here and raw there: set the same on both"
        )
        assert other.level_problem == (
            "store_pool.level is raw here and int8 there: set the same on both"
        )
    said = [one.getMessage() for one in caplog.records]
    for peer, problem in (("b", one.level_problem), ("a", other.level_problem)):
        assert said.count(f"blocks of the store {peer} are read at raw: {problem}") == 1


async def test_stores_that_are_set_alike_have_nothing_to_say(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with encoded_pool(folder, "int8") as sides:
        for side in sides:
            peer = await seen_by(side)
            assert (peer.level, peer.level_problem) == ("int8", "")
    assert not [one for one in caplog.records if "are read at" in one.getMessage()]


@pytest.mark.parametrize("profiled", [False, True])
async def test_adaptive_without_a_profile_is_told_what_it_lacks(
    folder: Path, caplog: pytest.LogCaptureFixture, profiled: bool
) -> None:
    pool = {**pool_table("a", free_ports(1)[0], []), "level": "adaptive"}
    pool |= {"profile": str(profile_file(folder))} if profiled else {}
    async with served(folder, pool=pool):
        pass
    hints = [one for one in caplog.records if "`antiphon kv profile" in one.getMessage()]
    assert len(hints) == (0 if profiled else 1)


async def test_blocks_of_another_profile_come_as_they_are_and_none_is_thrown_away(
    folder: Path,
) -> None:
    """What the peer's profile encodes could not be decoded by the own one."""
    own = profile_file(folder)
    (folder / "other").mkdir()
    other = profile_file(folder / "other", IDENTITY, seed=7)
    async with encoded_pool(folder, "entropy-2", profile=own, other_profile=other) as (a, b):
        keys = await b.worker.put(BLOCKS)
        await a.knows(keys)
        got, lossy = await a.worker.get_all(keys)
        assert (got, lossy) == ([content_at(at, 0) for at in range(BLOCKS)], set())
        peer = await seen_by(a)
        assert (peer.level, peer.failed_reads_total) == ("raw", 0)
        assert peer.level_problem.startswith("store_pool.profile is another one there")
        levels = (await a.peers()).levels
        assert not sum(one.damaged_blocks_total for one in levels)
        assert peer.read_bytes_total >= BLOCKS * BLOCK_BYTES
