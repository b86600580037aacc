"""A worker takes KV of a worker on another host: leases over TLS, pages over TCP."""

from dataclasses import replace
from pathlib import Path

import pytest
from handover_kit import Handover
from network_kit import make_keys
from pull_kit import LEASE

from antiphon.errors import PeerError
from antiphon.types import LeaseHeld, WorkerId

pytestmark = pytest.mark.timeout(120)


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
