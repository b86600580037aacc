"""Pages that come in parts: proven with the last one, or a miss."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from region_kit import SHAPE, offered, page_of, pull, region, write

from antiphon.store.transfer import MappedRegion, Miss, OwnedRegion, Part
from antiphon.types import OfferedPage

BYTES = SHAPE.page_bytes
HALVES = (Part(0, 512, last=False), Part(512, BYTES, last=True))


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[OwnedRegion, OwnedRegion, MappedRegion]]:
    owner, own = region(page_bytes=BYTES), region(page_bytes=BYTES)
    mapped = MappedRegion(owner.fd, own)
    yield owner, own, mapped
    mapped.close()


def cuts() -> st.SearchStrategy[tuple[Part, ...]]:
    """Of a page of 1024 bytes: whole stripes, at least four each."""

    def parts(at: Sequence[int]) -> tuple[Part, ...]:
        bounds = [0, *(256 * cut for cut in sorted(at)), BYTES]
        pairs = itertools.pairwise(bounds)
        return tuple(Part(start, end, last=end == BYTES) for start, end in pairs)

    return st.sets(st.integers(1, 3)).map(lambda some: parts(list(some)))


@settings(deadline=None, max_examples=60)
@given(cuts(), st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True), st.integers(0, 99))
def test_in_parts_comes_what_would_come_at_once(
    sides: tuple[OwnedRegion, OwnedRegion, MappedRegion],
    parts: tuple[Part, ...],
    targets: list[int],
    seed: int,
) -> None:
    owner, own, mapped = sides
    pulls = pull(*((offered(owner, 7 - at, seed + at), at) for at in targets))
    before = mapped.pulled
    for part in parts:
        assert mapped.pull_part(pulls, part) == (True,) * len(pulls)
    for at in targets:
        assert np.array_equal(page_of(own, at), page_of(owner, 7 - at))
        assert own.generations[at] % 2 == 1
    assert mapped.pulled == before + len(targets), "each counts once"


def reassigned(owner: OwnedRegion, page: OfferedPage) -> None:
    write(owner, page.page, seed=77)
    owner.seal([page.page])


def being_written(owner: OwnedRegion, page: OfferedPage) -> None:
    owner.begin_write([page.page])


def flipped_behind(owner: OwnedRegion, page: OfferedPage) -> None:
    page_of(owner, page.page)[-1] ^= 1


def flipped_before(owner: OwnedRegion, page: OfferedPage) -> None:
    """In the part that was copied already: it is the copy that counts."""
    page_of(owner, page.page)[0] ^= 1


@pytest.mark.parametrize(
    ("change", "miss"),
    [(reassigned, Miss.STALE), (being_written, Miss.STALE), (flipped_behind, Miss.CORRUPT)],
)
def test_a_page_that_changes_between_two_parts_is_a_miss(
    sides: tuple[OwnedRegion, OwnedRegion, MappedRegion],
    change: Callable[[OwnedRegion, OfferedPage], None],
    miss: Miss,
) -> None:
    owner, _, mapped = sides
    pages = [offered(owner, at, seed=at) for at in range(3)]
    pulls, before = pull(*zip(pages, (5, 6, 7), strict=True)), mapped.missed[miss]
    assert mapped.pull_part(pulls, HALVES[0]) == (True, True, True)
    change(owner, pages[1])
    assert mapped.pull_part(pulls, HALVES[1]) == (True, False, True)
    assert mapped.missed[miss] == before + 1


def test_what_changes_behind_the_copy_does_not_matter(
    sides: tuple[OwnedRegion, OwnedRegion, MappedRegion],
) -> None:
    owner, own, mapped = sides
    page = offered(owner, 0, seed=5)
    content = page_of(owner, 0).copy()
    assert mapped.pull_part(pull((page, 3)), HALVES[0]) == (True,)
    flipped_before(owner, page)
    assert mapped.pull_part(pull((page, 3)), HALVES[1]) == (True,)
    assert np.array_equal(page_of(own, 3), content)


def test_control_whoever_skips_a_part_has_proven_nothing(
    sides: tuple[OwnedRegion, OwnedRegion, MappedRegion],
) -> None:
    owner, own, mapped = sides
    page_of(own, 4)[:] = 0
    page = offered(owner, 2, seed=6)
    assert mapped.pull_part(pull((page, 4)), HALVES[1]) == (False,)
