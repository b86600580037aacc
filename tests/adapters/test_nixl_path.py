"""NIXL as a way to pages: refused by name where it is missing, the same checks where it is not."""

import importlib.util
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from antiphon.adapters import nixl_path
from antiphon.adapters.nixl_path import NixlAccess, NixlOwner, NixlPath
from antiphon.errors import PeerError, UsageError
from antiphon.store.transfer import Miss, OwnedRegion
from antiphon.types import KvShape, OfferedPage, PagePull

SHAPE = KvShape(layout="test", page_tokens=16, block_tokens=64, page_bytes=4096, pages=8)
HERE = importlib.util.find_spec("nixl") is not None
needs_nixl = pytest.mark.skipif(not HERE, reason="NIXL is not installed (antiphon[nixl])")


@pytest.mark.skipif(HERE, reason="NIXL is installed")
def test_without_the_package_it_is_refused_by_name() -> None:
    with pytest.raises(
        UsageError, match=r"NIXL is not installed .* pip install 'antiphon\[nixl\]'"
    ):
        NixlOwner("p0", OwnedRegion(SHAPE))


class HalfAnAgent:
    """Registers memory and peers; fails at what `refused` names, from its second call on."""

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.calls = 0
        self.held: list[Any] = []

    def register_memory(self, rows: Any, kind: str) -> Any:
        return self._taken("register_memory", rows)

    def deregister_memory(self, handle: Any) -> None:
        self.held.remove(handle)

    def get_agent_metadata(self) -> bytes:
        return b"me"

    def add_remote_agent(self, metadata: bytes) -> str:
        return self._taken("add_remote_agent", "peer")

    def remove_remote_agent(self, name: str) -> None:
        self.held.remove(name)

    def get_xfer_descs(self, rows: Any, kind: str) -> Any:
        return rows

    def prep_xfer_dlist(self, agent: str, rows: Any) -> Any:
        if self.refused == "prep_xfer_dlist":
            raise RuntimeError("no such peer")
        return rows

    def _taken(self, what: str, held: Any) -> Any:
        if what == self.refused:
            self.calls += 1
            if what == "add_remote_agent" or self.calls > 1:
                raise RuntimeError(f"no {what}")
        self.held.append(held)
        return held


@pytest.mark.parametrize("refused", ["register_memory", "add_remote_agent", "prep_xfer_dlist"])
def test_what_was_registered_is_given_back_where_the_rest_can_not_be_had(
    refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = OwnedRegion(SHAPE)
    access = NixlAccess(
        metadata=b"you", generations_at=0, pages_at=0, pages=8, page_bytes=4096, layout="test"
    )
    for make in (lambda: NixlOwner("p0", region), lambda: NixlPath("d0", region, access)):
        agent = HalfAnAgent(refused)
        monkeypatch.setattr(nixl_path, "_agent", lambda name, agent=agent: agent)
        with suppress(RuntimeError):
            make().close()
        assert agent.held == []


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[OwnedRegion, OwnedRegion, NixlPath]]:
    owner, own = OwnedRegion(SHAPE), OwnedRegion(SHAPE)
    name = secrets.token_hex(4)
    side = NixlOwner(f"owner-{name}", owner)
    path = NixlPath(f"taker-{name}", own, side.access)
    yield owner, own, path
    path.close()
    side.close()


def sealed(owner: OwnedRegion, page: int) -> OfferedPage:
    owner.begin_write([page])
    table = owner.content.reshape(SHAPE.pages, -1)
    table[page] = np.random.default_rng(page).integers(0, 256, SHAPE.page_bytes, np.uint8)
    return owner.seal([page])[0]


@needs_nixl
def test_pages_come_and_what_is_not_what_was_offered_is_missed(
    sides: tuple[OwnedRegion, OwnedRegion, NixlPath],
) -> None:
    owner, own, path = sides
    good = [PagePull(sealed(owner, page), 7 - page) for page in range(3)]
    stale, corrupt = sealed(owner, 3), sealed(owner, 4)
    sealed(owner, 3)
    pulls = [
        *good,
        PagePull(stale, 0),
        PagePull(replace(corrupt, checksum=1), 1),
        PagePull(OfferedPage(99, 2, 0), 2),
    ]
    assert path.pull(pulls, 20.0) == (True,) * 3 + (False,) * 3
    assert path.missed == {Miss.STALE: 1, Miss.CORRUPT: 1, Miss.IMPOSSIBLE: 1}
    tables = [region.content.reshape(SHAPE.pages, -1) for region in (owner, own)]
    for page in range(3):
        assert np.array_equal(tables[1][7 - page], tables[0][page])
        assert own.generations[7 - page] % 2 == 1


@needs_nixl
def test_pages_of_another_layout_are_refused(
    sides: tuple[OwnedRegion, OwnedRegion, NixlPath],
) -> None:
    owner = NixlOwner(f"other-{secrets.token_hex(4)}", sides[0])
    other = OwnedRegion(replace(SHAPE, layout="other"))
    with pytest.raises(PeerError, match="can't be read here"):
        NixlPath("taker", other, owner.access)
    owner.close()
