from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.workload.asks import WORDS
from antiphon.workload.prompt_text import text, words

seeds = st.integers(0, 2**40)


@settings(deadline=None)
@given(seeds, st.integers(0, 500), st.integers(0, 500), st.integers(0, 2**40))
def test_a_longer_text_begins_like_a_shorter_one(seed: int, a: int, b: int, number: int) -> None:
    short, long = sorted((a, b))
    run = words(long, seed, "test", number)
    assert len(run) == long
    assert set(run) <= set(WORDS)
    assert run[:short] == words(short, seed, "test", number)
    assert text(long, seed, "test", number).split() == run


def test_texts_of_different_purposes_part_at_once() -> None:
    begins = {tuple(words(4, 1, "test", number)) for number in range(5000)}
    assert len(begins) > 4990
    assert words(8, 1, "test", 0) != words(8, 2, "test", 0)


def test_these_are_the_words_on_every_machine() -> None:
    assert text(8, 1, "test", 7) == FROZEN


FROZEN = "other all is been back like and long"
