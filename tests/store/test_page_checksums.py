"""Pages against their checksums, as the library computes them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_kit import ORIGIN, checksums, pages_of

from antiphon.errors import BugError
from antiphon.store.record import all_match, check_pages, checksum_problem, new_pages


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(0, 2 * 512 * 8 - 1))
def test_whole_pages_match_and_a_flipped_bit_does_not(seed: int, bit: int) -> None:
    pages = pages_of(seed)
    sums = checksums(pages)
    assert all_match(pages, sums)
    page, within = divmod(bit, 512 * 8)
    pages[page][within // 8] ^= 1 << within % 8
    assert not all_match(pages, sums)


def test_pages_in_another_order_do_not_match() -> None:
    pages = pages_of(1)
    assert not all_match(pages[::-1], checksums(pages))


def test_new_pages_are_a_block_and_can_be_written() -> None:
    pages = new_pages(ORIGIN)
    check_pages(pages, ORIGIN)
    pages[1][:] = 7
    assert not pages[0].any()


@pytest.mark.parametrize(
    "pages",
    [
        [],
        new_pages(ORIGIN)[:1],
        [page[:256] for page in new_pages(ORIGIN)],
        [np.zeros(1024, np.uint8)[::2] for _ in range(2)],
        [np.frombuffer(new_pages(replace(ORIGIN, page_bytes=576))[0], np.uint8, 512, 8)] * 2,
    ],
    ids=["none", "too few", "too short", "scattered", "not aligned"],
)
def test_what_is_no_block_is_refused_before_a_kernel_sees_it(pages: list) -> None:
    with pytest.raises(BugError, match="page"):
        check_pages(pages, ORIGIN)


@pytest.mark.parametrize("page_bytes", [192, 300, 512 + 32])
def test_pages_that_can_not_be_verified_can_not_be_stored(page_bytes: int) -> None:
    problem = checksum_problem(replace(ORIGIN, page_bytes=page_bytes))
    assert problem is not None
    assert str(page_bytes) in problem
