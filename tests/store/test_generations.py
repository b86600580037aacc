"""Odd while written, even when sealed, another number after each reassignment."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from region_kit import SHAPE, checksum, page_of, region, write

from antiphon.errors import BugError
from antiphon.types import OfferedPage

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "write", "seal"]), st.integers(0, SHAPE.pages - 1)),
    max_size=60,
)


@settings(deadline=None, max_examples=100)
@given(STEPS)
def test_a_sealed_page_keeps_its_generation_until_it_is_written(steps: list[Step]) -> None:
    owner, was = region(), [0] * SHAPE.pages
    offers: dict[int, OfferedPage] = {}
    for seed, (what, page) in enumerate(steps):
        match what:
            case "begin":
                owner.begin_write([page, page])
            case "write":
                write(owner, page, seed)
            case _:
                (offer,) = owner.seal([page])
                assert offer.page == page
                assert offer.checksum == checksum(page_of(owner, page))
                assert offers.setdefault(offer.generation * SHAPE.pages + page, offer) == offer
        generation = int(owner.generations[page])
        assert generation % 2 == (what != "seal")
        assert generation == was[page] + (generation % 2 != was[page] % 2)
        was[page] = generation
        assert owner.generations.tolist() == was


def test_a_page_that_was_not_written_again_is_not_hashed_again() -> None:
    owner = region()
    write(owner, 3, 1)
    (first,) = owner.seal([3])
    page_of(owner, 3)[5] ^= 1  # behind the discipline's back
    assert owner.seal([3, 3]) == (first, first)
    owner.begin_write([3])
    (second,) = owner.seal([3])
    assert (second.generation, second.checksum) == (
        first.generation + 2,
        checksum(page_of(owner, 3)),
    )


def test_offers_come_in_the_order_asked_and_may_be_none() -> None:
    owner = region()
    assert [offer.page for offer in owner.seal([5, 0, 2])] == [5, 0, 2]
    assert owner.seal([]) == ()
    owner.begin_write([])


@pytest.mark.parametrize("page", [-1, SHAPE.pages])
def test_a_page_that_does_not_exist_is_a_bug(page: int) -> None:
    owner = region()
    with pytest.raises(BugError, match="exist"):
        owner.begin_write(np.array([0, page]))
    with pytest.raises(BugError, match="exist"):
        owner.seal([0, page])
    assert not (owner.generations[1:]).any()
