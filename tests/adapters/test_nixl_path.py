"""Pages through NIXL: checked like all others, and never written to by a read that was given up.

Agents of `nixl_kit` stand for NIXL's; where the package is installed, its own do the same.
"""

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from nixl_kit import Wire, WiredAgent

from antiphon.adapters import nixl_path
from antiphon.adapters.nixl_agent import Agent, new_agent
from antiphon.adapters.nixl_memory import MOST_BROKEN, NixlMemory
from antiphon.errors import BugError, PeerError, UsageError
from antiphon.store.transfer import Miss, OwnedRegion
from antiphon.types import KvShape, OfferedPage, PagePull

SHAPE = KvShape(layout="test", page_tokens=16, block_tokens=64, page_bytes=4096, pages=8)
HERE = importlib.util.find_spec("nixl") is not None
needs_nixl = pytest.mark.skipif(not HERE, reason="NIXL is not installed (antiphon[nixl])")


@dataclass
class Sides:
    """An owner's memory and a taker's."""

    wire: Wire
    owner: OwnedRegion
    own: OwnedRegion
    offered: NixlMemory
    taking: NixlMemory
    taker: Agent

    def sealed(self, page: int) -> OfferedPage:
        self.owner.begin_write([page])
        table = self.owner.content.reshape(SHAPE.pages, -1)
        table[page] = np.random.default_rng(page).integers(0, 256, SHAPE.page_bytes, np.uint8)
        return self.owner.seal([page])[0]

    def came(self, page: int, target: int) -> bool:
        theirs, ours = (r.content.reshape(SHAPE.pages, -1) for r in (self.owner, self.own))
        return np.array_equal(ours[target], theirs[page])


def made(wire: Wire, agent: Callable[[], Agent]) -> Sides:
    owner, own, taker = OwnedRegion(SHAPE), OwnedRegion(SHAPE), agent()
    return Sides(wire, owner, own, NixlMemory(owner, agent()), NixlMemory(own, taker), taker)


@pytest.fixture
def sides() -> Sides:
    wire = Wire()
    return made(wire, wire.agent)


@pytest.fixture(params=["kit", pytest.param("nixl", marks=needs_nixl)])
def either(request: pytest.FixtureRequest) -> Iterator[Sides]:
    wire = Wire()
    both = made(wire, wire.agent if request.param == "kit" else new_agent)
    yield both
    both.taking.close()
    both.offered.close()


def test_without_the_package_it_is_refused_with_the_remedy(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "nixl._api", None)
    with pytest.raises(
        UsageError, match=r"network\.kv_transport = \"nixl\".* pip install 'antiphon\[nixl\]'"
    ):
        NixlMemory(OwnedRegion(SHAPE))


def test_pages_come_and_what_is_not_what_was_offered_is_missed(either: Sides) -> None:
    good = [PagePull(either.sealed(page), 7 - page) for page in range(3)]
    stale, corrupt = either.sealed(3), either.sealed(4)
    either.sealed(3)
    pulls = [
        *good,
        PagePull(stale, 0),
        PagePull(replace(corrupt, checksum=1), 1),
        PagePull(OfferedPage(99, 2, 0), 2),
        PagePull(replace(either.sealed(5), generation=1), 3),
    ]
    path = either.taking.path_to(either.offered.access)
    assert path.pull(pulls, 20.0) == (
        *(None,) * 3,
        Miss.STALE,
        Miss.CORRUPT,
        Miss.IMPOSSIBLE,
        Miss.IMPOSSIBLE,
    )
    for page in range(3):
        assert either.came(page, 7 - page)
        assert either.own.generations[7 - page] % 2 == 1
    with pytest.raises(BugError, match="target"):
        path.pull([replace(good[0], target=8)], 20.0)
    either.taking.leave(path)


def test_more_pages_than_are_staged_at_once(either: Sides, monkeypatch) -> None:
    monkeypatch.setattr(nixl_path, "STAGED_BYTES", 3 * SHAPE.page_bytes)
    path = either.taking.path_to(either.offered.access)
    pulls = [PagePull(either.sealed(page), 7 - page) for page in range(8)]
    assert path.pull(pulls, 20.0) == (None,) * 8
    assert all(either.came(page, 7 - page) for page in range(8))
    assert path.pull([], 20.0) == ()
    either.taking.leave(path)


def test_a_page_that_is_reassigned_during_the_read_is_a_miss(sides: Sides, monkeypatch) -> None:
    """Its generation is read after it, so a page with the old bytes is no use either."""
    offered = sides.sealed(1)
    path = sides.taking.path_to(sides.offered.access)
    transfer, seen = sides.taker.transfer, []

    def reassigned(handle: object) -> str:
        state = transfer(handle)
        if not seen:
            sides.owner.begin_write([1])
        seen.append(state)
        return state

    monkeypatch.setattr(sides.taker, "transfer", reassigned)
    assert path.pull([PagePull(offered, 0)], 20.0) == (Miss.STALE,)
    assert seen == ["DONE", "DONE"]


def test_what_comes_after_its_pull_was_given_up_is_written_to_no_page(
    sides: Sides, monkeypatch
) -> None:
    monkeypatch.setattr(nixl_path, "PATIENCE_S", 0.01)
    offered = sides.sealed(1)
    path = sides.taking.path_to(sides.offered.access)
    sides.wire.late = True
    with pytest.raises(PeerError, match="not done in time"):
        path.pull([PagePull(offered, 0)], 20.0)
    before = sides.own.content.copy()
    kept = isinstance(sides.taker, WiredAgent) and len(sides.taker.registered)
    sides.taking.leave(path)
    sides.wire.late = False
    sides.wire.arrive()
    assert np.array_equal(sides.own.content, before)
    assert isinstance(sides.taker, WiredAgent)
    assert len(sides.taker.registered) == kept == 4, "its staging is left to it"
    assert sides.taker.open_handles == 1
    with pytest.raises(PeerError, match="not done in time"):
        sides.taking.path_to(sides.offered.access)


def test_pages_for_which_there_is_no_time_are_misses_and_break_nothing(
    sides: Sides, monkeypatch
) -> None:
    path = sides.taking.path_to(sides.offered.access)
    pulls = [PagePull(sides.sealed(page), 7 - page) for page in range(2)]
    assert path.pull(pulls, 0.0) == (Miss.UNREACHED,) * 2
    monkeypatch.setattr(nixl_path, "STAGED_BYTES", SHAPE.page_bytes)
    sides.taking.leave(path)
    path = sides.taking.path_to(sides.offered.access)
    transfer = sides.taker.transfer

    def slow(handle: object) -> str:
        time.sleep(0.3)
        return transfer(handle)

    monkeypatch.setattr(sides.taker, "transfer", slow)
    assert path.pull(pulls, 0.5) == (None, Miss.UNREACHED)
    assert path.pull(pulls, 20.0) == (None, None)


def test_a_read_that_fails_breaks_the_path_and_a_process_has_few_of_those() -> None:
    wire = Wire()
    taking = NixlMemory(OwnedRegion(SHAPE), wire.agent())
    owners = [NixlMemory(OwnedRegion(SHAPE), wire.agent()) for _ in range(MOST_BROKEN + 1)]
    wire.state = "ERR"
    for owner in owners[:MOST_BROKEN]:
        path = taking.path_to(owner.access)
        with pytest.raises(PeerError, match="ended as 'ERR'"):
            path.pull([PagePull(OfferedPage(0, 2, 0), 0)], 20.0)
        taking.leave(path)
    with pytest.raises(PeerError, match="no more of it"):
        taking.path_to(owners[MOST_BROKEN].access)


@pytest.mark.parametrize(
    ("call", "kept"),
    [
        ("get_xfer_descs", 2),
        ("initialize_xfer", 2),
        ("transfer", 4),
        ("check_xfer_state", 4),
        ("release_xfer_handle", 2),
    ],
)
def test_whatever_nixl_raises_breaks_the_path_alone(
    sides: Sides, monkeypatch, call: str, kept: int
) -> None:
    """Its staging stays with it only if a read may still write there."""
    offered = sides.sealed(1)
    path = sides.taking.path_to(sides.offered.access)
    sides.wire.late = call == "check_xfer_state"

    def fail(*_: object) -> None:
        raise RuntimeError("NIXL_ERR_BACKEND")

    with monkeypatch.context() as patch, pytest.raises(PeerError, match="NIXL_ERR_BACKEND"):
        patch.setattr(sides.taker, call, fail)
        path.pull([PagePull(offered, 0)], 20.0)
    with pytest.raises(PeerError, match="NIXL_ERR_BACKEND"):
        path.pull([PagePull(offered, 0)], 20.0)
    sides.taking.leave(path)
    assert isinstance(sides.taker, WiredAgent)
    assert len(sides.taker.registered) == kept


def test_pages_where_no_memory_can_be_break_the_path_alone(either: Sides) -> None:
    """An owner may say anything of its memory, and offer any page of it."""
    path = either.taking.path_to(replace(either.offered.access, pages=2**48))
    with pytest.raises(PeerError, match="does not bring a peer's pages"):
        path.pull([PagePull(OfferedPage(2**47, 2, 0), 0)], 20.0)
    either.taking.leave(path)
    path = either.taking.path_to(either.offered.access)
    assert path.pull([PagePull(either.sealed(1), 0)], 20.0) == (None,)
    either.taking.leave(path)


def test_a_path_is_shared_and_goes_with_its_last_user(sides: Sides) -> None:
    assert isinstance(sides.taker, WiredAgent)
    one = sides.taking.path_to(sides.offered.access)
    assert sides.taking.path_to(sides.offered.access) is one
    sides.taking.leave(one)
    assert one.pull([PagePull(sides.sealed(1), 0)], 20.0) == (None,)
    sides.taking.leave(one)
    assert (sides.taker.peers, len(sides.taker.registered)) == ([], 2)
    again = sides.taking.path_to(sides.offered.access)
    assert again is not one
    assert again.pull([PagePull(sides.sealed(2), 1)], 20.0) == (None,)
    with pytest.raises(PeerError, match="closed"):
        one.pull([PagePull(sides.sealed(1), 0)], 20.0)
    sides.taking.leave(again)
    sides.taking.close()
    assert sides.taker.registered == []


@pytest.mark.parametrize("metadata", [b"{}", b"?", b'{"name": "nobody"}'])
def test_metadata_that_means_nothing_is_a_peers_failure(sides: Sides, metadata: bytes) -> None:
    assert isinstance(sides.taker, WiredAgent)
    with pytest.raises(PeerError, match="can't reach a peer's memory"):
        sides.taking.path_to(replace(sides.offered.access, metadata=metadata))
    assert len(sides.taker.registered) == 2


def test_a_system_without_memory_for_staging_is_a_peers_failure_too(
    sides: Sides, monkeypatch
) -> None:
    monkeypatch.setattr(nixl_path, "STAGED_BYTES", 2**62)
    with pytest.raises(PeerError, match=r"can't reach a peer's memory: .*allocate"):
        sides.taking.path_to(sides.offered.access)


@needs_nixl
def test_metadata_that_means_nothing_to_nixl_is_too() -> None:
    memory = NixlMemory(OwnedRegion(SHAPE))
    for metadata in (b"?", bytes(1000), memory.access.metadata[:-40]):
        with pytest.raises(PeerError, match="can't reach a peer's memory"):
            memory.path_to(replace(memory.access, metadata=metadata))
    memory.close()


@needs_nixl
def test_a_process_that_had_an_agent_ends_with_its_own_code() -> None:
    script = "import sys; from antiphon.adapters.nixl_agent import new_agent; new_agent()"
    done = subprocess.run([sys.executable, "-c", f"{script}; sys.exit(7)"], timeout=60)
    assert done.returncode == 7
