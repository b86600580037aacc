"""What a pull answers, for every way in which a page can be another than the offered one."""

import fcntl
import gc
import os
import tempfile
import threading
from array import array
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from region_kit import (
    SHAPE,
    descriptors,
    ignores_both,
    ignores_checksums,
    ignores_generations,
    maps,
    offered,
    page_of,
    pull,
    region,
    write,
)

from antiphon.errors import BugError, PeerError
from antiphon.store.transfer import MappedRegion, Miss
from antiphon.store.transfer.page_copy import Places, copy_pages
from antiphon.store.transfer.region_header import RegionHeader
from antiphon.types import OfferedPage, PagePull

PAGES = SHAPE.pages


@pytest.fixture
def owner():
    return region()


@pytest.fixture
def own():
    return region(pages=6)


@pytest.fixture
def mapped(owner, own):
    mapping = MappedRegion(owner.fd, own)
    yield mapping
    mapping.close()


def test_pages_arrive_where_they_should(owner, own, mapped) -> None:
    first, second = offered(owner, 2, 1), offered(owner, 7, 2)
    own.content[:] = 9
    assert mapped.pull(pull((first, 5), (second, 0), (first, 1))) == (True, True, True)
    for source, target in ((2, 5), (7, 0), (2, 1)):
        assert np.array_equal(page_of(own, target), page_of(owner, source))
    assert (page_of(own, 2) == 9).all()
    assert own.generations.tolist() == [1, 1, 0, 0, 0, 1]
    assert (mapped.pulled, sum(mapped.missed.values())) == (3, 0)
    assert mapped.pull([]) == ()


def test_pulled_pages_can_be_offered_on(owner, own, mapped) -> None:
    first = offered(owner, 2, 1)
    assert mapped.pull(pull((first, 3))) == (True,)
    (again,) = own.seal([3])
    assert (again.checksum, again.generation) == (first.checksum, 2)


def test_large_pages() -> None:
    owner, own = region(page_bytes=4 << 20), region(page_bytes=4 << 20)
    mapped = MappedRegion(owner.fd, own)
    offers = [offered(owner, page, page) for page in range(3)]
    assert mapped.pull(pull(*zip(offers, (2, 0, 1), strict=True))) == (True, True, True)
    for page, target in enumerate((2, 0, 1)):
        assert np.array_equal(page_of(own, target), page_of(owner, page))


def reassigned(owner, page: OfferedPage) -> OfferedPage:
    offered(owner, page.page, 99)
    return page


def with_same_content(owner, page: OfferedPage) -> OfferedPage:
    """Reassigned, and the new content happens to be the old one."""
    offered(owner, page.page, 1)
    return page


def being_written(owner, page: OfferedPage) -> OfferedPage:
    write(owner, page.page, 1)
    return page


def flipped(owner, page: OfferedPage) -> OfferedPage:
    page_of(owner, page.page)[77] ^= 4
    return page


def half_written(owner, page: OfferedPage) -> OfferedPage:
    page_of(owner, page.page)[512:] = 0
    return page


STALE = {"reassigned": reassigned, "the same again": with_same_content, "odd now": being_written}
IMPOSSIBLE = {
    "no such page": lambda page: replace(page, page=PAGES),
    "negative page": lambda page: replace(page, page=-1),
    "odd generation": lambda page: replace(page, generation=page.generation + 1),
    "negative generation": lambda page: replace(page, generation=-2),
    "huge generation": lambda page: replace(page, generation=1 << 64),
    "huge page": lambda page: replace(page, page=1 << 70),
    "negative checksum": lambda page: replace(page, checksum=-1),
}


@pytest.mark.parametrize("change", STALE.values(), ids=STALE)
def test_another_generation_is_stale(owner, own, mapped, change) -> None:
    """vLLM 21570: the owner frees on a timeout, and the taker reads recycled blocks."""
    other, page = offered(owner, 1, 5), offered(owner, 2, 1)
    change(owner, page)
    assert mapped.pull(pull((page, 0), (other, 1))) == (False, True)
    assert mapped.missed == {Miss.STALE: 1}


@pytest.mark.parametrize("change", [flipped, half_written])
def test_other_bytes_are_corrupt(owner, own, mapped, change) -> None:
    """TensorRT-LLM 19545, sglang 30890: success was reported, but the bytes were not there.

    vllm-ascend 8427, sglang 8324: after an error of the transfer, outputs were garbage.
    """
    other, page = offered(owner, 1, 5), change(owner, offered(owner, 2, 1))
    assert mapped.pull(pull((page, 0), (other, 1))) == (False, True)
    wrong = replace(other, checksum=other.checksum ^ 1)
    assert mapped.pull(pull((wrong, 0))) == (False,)
    assert mapped.missed == {Miss.CORRUPT: 2}


def test_an_offer_of_an_earlier_life_is_a_miss(own) -> None:
    """vLLM 49238: metadata of a peer that had restarted under the same name was used again."""
    before, after = region(), region()
    old, new = offered(before, 2, 1), offered(after, 2, 3)
    assert (old.page, old.generation) == (new.page, new.generation)
    mapped = MappedRegion(after.fd, own)
    assert mapped.pull(pull((old, 0), (new, 1))) == (False, True)
    mapped.close()


@pytest.mark.parametrize("change", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_page_is_a_miss(owner, own, mapped, change) -> None:
    other = offered(owner, 1, 5)
    wrong = change(offered(owner, 2, 1))
    assert mapped.pull(pull((wrong, 0), (other, 1))) == (False, True)
    assert mapped.missed == {Miss.IMPOSSIBLE: 1}
    assert not page_of(own, 0).any()


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.builds(
            OfferedPage,
            st.integers(-(2**66), 2**66) | st.integers(0, PAGES),
            st.integers(-(2**66), 2**66) | st.sampled_from([0, 2]),
            st.integers(-(2**66), 2**66),
        ),
        max_size=6,
    )
)
def test_whatever_an_offer_says_nothing_is_raised(offers: list[OfferedPage]) -> None:
    owner, own = region(), region()
    right = offered(owner, 3, 1)
    mapped = MappedRegion(owner.fd, own)
    good = mapped.pull(pull(*((offer, i) for i, offer in enumerate([*offers, right]))))
    assert good == (*(offer == right for offer in offers), True)
    assert mapped.pulled + sum(mapped.missed.values()) == len(good)
    mapped.close()


@pytest.mark.parametrize("target", [-1, 6, 1 << 64])
def test_a_target_that_does_not_exist_is_a_bug(owner, own, mapped, target: int) -> None:
    page = offered(owner, 1, 5)
    with pytest.raises(BugError, match="target"):
        mapped.pull([PagePull(page, target)])


# ── controls: each check is seen to be needed ────────────────────────────────────────────────────


@pytest.mark.parametrize("copy", [ignores_generations, ignores_both])
def test_control_without_generations_a_reassigned_page_passes(owner, own, copy) -> None:
    page = with_same_content(owner, offered(owner, 2, 1))
    assert MappedRegion(owner.fd, own, copy=copy).pull(pull((page, 0))) == (True,)


@pytest.mark.parametrize("copy", [ignores_checksums, ignores_both])
def test_control_without_checksums_corrupt_bytes_pass(owner, own, copy) -> None:
    page = flipped(owner, offered(owner, 2, 1))
    assert MappedRegion(owner.fd, own, copy=copy).pull(pull((page, 0))) == (True,)


# ── mapping ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "changes", [{"layout": "other"}, {"page_tokens": 8}, {"page_bytes": 2048}], ids=str
)
def test_another_layout_is_refused_by_name(owner, changes: dict[str, object]) -> None:
    gc.collect()  # regions of earlier tests
    before = descriptors(), maps()
    (name,) = changes
    with pytest.raises(PeerError, match=f"its {name} is"):
        MappedRegion(owner.fd, other := region(**changes))
    other.close()
    del other
    gc.collect()
    assert (descriptors(), maps()) == before


def test_other_kinds_of_files_are_refused(own) -> None:
    unsealed, (reads, writes) = os.memfd_create("x", os.MFD_ALLOW_SEALING), os.pipe()
    with tempfile.TemporaryFile() as regular:
        regular.write(bytes(1 << 20))
        regular.flush()
        before = descriptors(), maps()
        for fd in (regular.fileno(), reads, writes):
            with pytest.raises(PeerError, match="no KV region"):
                MappedRegion(fd, own)
        with pytest.raises(PeerError, match="not sealed"):
            MappedRegion(unsealed, own)
        assert (descriptors(), maps()) == before
    for fd in (unsealed, reads, writes):
        os.close(fd)


def test_a_peer_that_promises_more_than_it_has_costs_no_memory(own) -> None:
    """Reading holes would fill them, at the reader's expense."""
    promised = RegionHeader.of(replace(own.shape, pages=1 << 20))
    fd = os.memfd_create("sparse", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, promised.region_bytes)
    os.pwrite(fd, promised.encoded(), 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    mapped = MappedRegion(fd, own)
    assert os.fstat(fd).st_blocks * 512 < 1 << 20
    absent = OfferedPage(promised.pages - 1, 2, 0)
    assert mapped.pull(pull((absent, 0))) == (False,)
    mapped.close()
    os.close(fd)


def test_the_descriptor_is_the_callers_and_not_needed_any_more(owner, own) -> None:
    fd = os.dup(owner.fd)
    mapped = MappedRegion(fd, own)
    os.close(fd)
    assert mapped.pull(pull((offered(owner, 2, 1), 0))) == (True,)


def test_after_closing_all_is_a_miss(owner, own, mapped) -> None:
    page = offered(owner, 2, 1)
    mapped.close()
    assert mapped.pull(pull((page, 0), (page, 1))) == (False, False)
    assert mapped.missed == {Miss.UNMAPPED: 2}


def test_closing_during_a_pull_waits_for_its_end(owner, own) -> None:
    entered, may_go_on = threading.Event(), threading.Event()

    def slow(places: Places, table: "array[int]") -> None:
        entered.set()
        assert may_go_on.wait(10)
        copy_pages(places, table)

    mapped = MappedRegion(owner.fd, own, copy=slow)
    page, answers = offered(owner, 2, 1), []
    puller = threading.Thread(target=lambda: answers.append(mapped.pull(pull((page, 0)))))
    puller.start()
    assert entered.wait(10)
    there = maps()
    mapped.close()
    assert maps() == there
    assert mapped.pull(pull((page, 1))) == (False,)
    may_go_on.set()
    puller.join(10)
    assert answers == [(True,)]
    assert maps() == there - 1


def test_an_owner_that_closes_leaves_its_readers_alone(owner, own, mapped) -> None:
    page = offered(owner, 2, 1)
    content = page_of(owner, 2).copy()
    owner.close()
    assert mapped.pull(pull((page, 0))) == (True,)
    assert np.array_equal(page_of(own, 0), content)
