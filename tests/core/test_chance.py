from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.chance import below, uniform

WORDS = st.lists(st.integers(-(2**100), 2**100), max_size=4)


@given(WORDS)
def test_a_draw_is_a_number_in_zero_to_one_and_always_the_same(words: list[int]) -> None:
    assert 0 <= uniform("test", *words) < 1
    assert uniform("test", *words) == uniform("test", *words)


def test_frozen_vectors() -> None:
    """Other machines and later versions must draw the same."""
    assert uniform("test", 1, 2, 3) == 0.3125480619922416
    assert uniform("test", 1, 2) != uniform("other", 1, 2)


@given(st.integers(1, 1000), st.integers())
def test_below_stays_below(bound: int, word: int) -> None:
    assert 0 <= below(bound, "test", word % 2**64) < bound


def test_draws_are_even() -> None:
    counts = [0] * 10
    for number in range(10_000):
        counts[below(10, "test", number)] += 1
    assert max(counts) - min(counts) < 200
