"""KV between hosts by NIXL where both sides have it, over TCP where not; and which, is said."""

import logging
from pathlib import Path

import pytest
from handover_kit import Handover
from network_kit import make_keys
from nixl_kit import Wire, WiredAgent
from pull_kit import LEASE

from antiphon.adapters import nixl_path
from antiphon.errors import PeerError
from antiphon.types import DataAccess, LinkUse, Transport

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    make_keys(tmp_path / "keys", "box1", "box2")
    return tmp_path


def pair(wire: Wire, *, owner: bool = True, taker: bool = True):
    return (wire.agent() if owner else None), (wire.agent() if taker else None)


async def pulled(both: Handover) -> LinkUse:
    """Three pages, and the only link that is told of then."""
    pull = both.pull()
    await both.path.take(both.owner, LEASE, 1)
    result = await both.path.copy(pull)
    assert result.good == (True, True, True), result.problem
    for page in pull.pages:
        assert (both.page(0, page.source.page) == both.page(1, page.target)).all()
    (link,) = both.path.links()
    return link


async def test_pages_come_by_nixl_where_both_have_it(folder: Path) -> None:
    owner, taker = pair(Wire())
    async with Handover(folder, seal=False, nixl=(owner, taker)) as both:
        link = await pulled(both)
        assert (link.transport, link.paths) == (Transport.NIXL, ())
        assert link.bytes_total == 3 * both.regions[0].shape.page_bytes
        assert both.server.counts()["bytes"] == 0
    assert taker is not None
    assert taker.peers == []


@pytest.mark.parametrize(("owner", "taker"), [(True, False), (False, True)])
async def test_where_one_has_it_alone_it_is_tcp(
    folder: Path, caplog: pytest.LogCaptureFixture, owner: bool, taker: bool
) -> None:
    caplog.set_level(logging.INFO)
    async with Handover(folder, seal=False, nixl=pair(Wire(), owner=owner, taker=taker)) as both:
        link = await pulled(both)
        assert link.transport is Transport.TCP
        assert [path.bytes_total for path in link.paths] == [link.bytes_total]
    assert "comes over TCP" in caplog.text
    assert ("offers no KV by NIXL" in caplog.text) == taker
    assert "comes by NIXL" not in caplog.text


async def test_an_owner_that_must_encrypt_is_not_read_by_nixl(folder: Path) -> None:
    """No configuration makes such a one: whoever says so is not believed."""
    async with Handover(folder, seal=True, nixl=pair(Wire())) as both:
        both.pull()
        with pytest.raises(PeerError, match="must be encrypted"):
            await both.path.take(both.owner, LEASE, 1)


async def test_a_pull_that_nixl_gave_up_is_lost_and_the_next_one_is_tcp(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nixl_path, "PATIENCE_S", 0.05)
    wire = Wire(late=True)
    async with Handover(folder, seal=False, nixl=pair(wire)) as both:
        pull = both.pull()
        await both.path.take(both.owner, LEASE, 1)
        with pytest.raises(PeerError, match="not done in time"):
            await both.path.copy(pull)
        assert both.path.links() == ()
        assert (await both.path.copy(pull)).good == (True, True, True)
        good = both.regions[1].content.copy()
        wire.arrive()
        assert (both.regions[1].content == good).all()
        (link,) = both.path.links()
        assert link.transport is Transport.TCP
        # The stream is opened anew, and the memory is the same: it stays so.
        both.port.new_life("a hiccup")
        await both.path.take(both.owner, LEASE, 1)
        assert (await both.path.copy(pull)).good == (True, True, True)
        assert {link.transport for link in both.path.links()} == {Transport.TCP}
    assert "comes over TCP from now on" in caplog.text


async def test_the_path_outlives_the_stream_that_brought_it(folder: Path) -> None:
    owner, taker = pair(Wire())
    async with Handover(folder, seal=False, nixl=(owner, taker)) as both:
        pull = both.pull()
        await both.path.take(both.owner, LEASE, 1)
        assert (await both.path.copy(pull)).good == (True, True, True)
        both.port.new_life("a hiccup")
        await both.path.take(both.owner, LEASE, 1)
        assert (await both.path.copy(pull)).good == (True, True, True)
        assert isinstance(taker, WiredAgent)
        assert taker.peers == ["agent-0"]
        (link,) = both.path.links()
        assert link.bytes_total == 6 * both.regions[0].shape.page_bytes


async def test_a_welcome_that_comes_when_the_owner_is_left_opens_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    async with Handover(folder, seal=False, nixl=pair(Wire())) as both:
        admit = both.server.admit

        def left_before() -> DataAccess:
            both.path.close()
            return admit()

        monkeypatch.setattr(both.server, "admit", left_before)
        with pytest.raises(PeerError):
            await both.path.take(both.owner, LEASE, 1)
    assert "comes by NIXL" not in caplog.text
