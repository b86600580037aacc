"""Memory of a region that is taken from the system later: before each write, and in the end all."""

import mmap
import os
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from region_kit import SHAPE, offered, page_of

from antiphon.errors import BugError, UsageError
from antiphon.store.transfer import MappedRegion, Miss, OwnedRegion
from antiphon.store.transfer import region as region_module
from antiphon.types import PagePull

PAGES = 40
LATER = replace(SHAPE, page_bytes=mmap.PAGESIZE, pages=PAGES)


def later(**changes: object) -> OwnedRegion:
    return OwnedRegion(replace(LATER, **changes), commit=False)


def taken(owner: OwnedRegion) -> int:
    """Bytes of memory that its pages have."""
    return os.fstat(owner.fd).st_blocks * 512 - owner.header.pages_at


def test_pages_have_memory_when_they_are_about_to_be_written_and_not_before() -> None:
    owner = later()
    assert taken(owner) == 0
    owner.begin_write([3, 9, 3])
    assert taken(owner) == 2 * mmap.PAGESIZE
    owner.begin_write([9])
    assert taken(owner) == 2 * mmap.PAGESIZE
    assert owner.back(2, 3)
    assert taken(owner) == 4 * mmap.PAGESIZE


def test_pages_that_share_a_page_of_the_system_have_it_both() -> None:
    owner = later(page_bytes=mmap.PAGESIZE // 4 * 3)
    owner.begin_write([1])
    assert taken(owner) == 2 * mmap.PAGESIZE


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, PAGES - 1), max_size=6), max_size=6))
def test_whatever_is_written_has_memory(writes: list[list[int]]) -> None:
    owner = later()
    for pages in writes:
        owner.begin_write(pages)
        assert all((owner.generations[page] % 2 == 1) for page in pages)
    assert taken(owner) == mmap.PAGESIZE * len({page for pages in writes for page in pages})


@pytest.mark.parametrize("page", [-1, PAGES, 10**9])
def test_a_page_that_does_not_exist_is_a_bug_as_ever(page: int) -> None:
    owner = later()
    with pytest.raises(BugError, match="does not exist"):
        owner.begin_write([2, page])
    assert owner.back_each([2, page])
    assert taken(owner) == mmap.PAGESIZE


def test_all_of_it_is_taken_in_order_until_somebody_says_stop(monkeypatch) -> None:
    monkeypatch.setattr(region_module, "_AT_ONCE_BYTES", 3 * mmap.PAGESIZE)
    owner = later()
    asked = count()
    owner.back_all(lambda: next(asked) == 2)
    assert taken(owner) == 6 * mmap.PAGESIZE
    assert owner._backed.tolist() == [True] * 6 + [False] * (PAGES - 6)
    owner.back_all(lambda: False)
    assert taken(owner) == PAGES * mmap.PAGESIZE


def no_memory_from(monkeypatch, owner: OwnedRegion, page: int) -> None:
    """The system has none for this page and those after it."""
    populate = region_module.prefault_part
    most = owner.header.pages_at + page * owner.shape.page_bytes

    def prefault_part(area: mmap.mmap, advice: int, start: int, end: int) -> None:
        if end > most:
            raise OSError(12, "Cannot allocate memory")
        populate(area, advice, start, end)

    monkeypatch.setattr(region_module, "prefault_part", prefault_part)


def test_memory_that_ends_is_an_error_and_never_a_signal(monkeypatch) -> None:
    """A write to a page that the system has no memory for would end the process (SIGBUS)."""
    owner = later()
    no_memory_from(monkeypatch, owner, 5)
    owner.begin_write([4])
    with pytest.raises(UsageError, match=r"lower kv\.memory_bytes"):
        owner.begin_write([3, 5])
    with pytest.raises(UsageError, match=r"lower kv\.memory_bytes"):
        owner.back_all(lambda: False)
    assert not owner.back(4, 2)


def test_a_pull_has_memory_for_what_it_brings(monkeypatch) -> None:
    source, owner = OwnedRegion(LATER), later()
    offers = [offered(source, page, seed=page) for page in (1, 2)]
    mapped = MappedRegion(source.fd, owner)
    assert mapped.pull([PagePull(offers[0], 7)]) == (True,)
    assert (page_of(owner, 7) == page_of(source, 1)).all()
    assert taken(owner) == mmap.PAGESIZE
    no_memory_from(monkeypatch, owner, 20)
    pulls = [PagePull(offers[0], 8), PagePull(offers[1], 20)]
    assert mapped.pull(pulls) == (False, False)
    assert mapped.missed == {Miss.NO_MEMORY: 2}
    assert mapped.pull(pulls[:1]) == (True,)
    with pytest.raises(BugError, match="do not exist"):
        mapped.pull([PagePull(offers[0], PAGES)])
    mapped.close()
