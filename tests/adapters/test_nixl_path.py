"""NIXL as a way to pages: refused by name where it is missing, the same checks where it is not."""

import importlib.util
import secrets
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from antiphon.adapters.nixl_path import NixlOwner, NixlPath
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
