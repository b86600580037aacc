"""Which blocks of the oldest segment are written again: laws, and the order of the chosen."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.tiers.second_chance import Candidate, worth_rewriting


def candidate(number: int, size_bytes: int, uses: int) -> Candidate:
    return Candidate(number.to_bytes(4, "little"), size_bytes, uses)


def test_the_most_used_are_kept_in_the_order_of_the_segment() -> None:
    oldest = [candidate(n, 10, uses) for n, uses in enumerate([1, 0, 5, 1, 3])]
    assert worth_rewriting(oldest, 30) == [oldest[n].key for n in (0, 2, 4)]


def test_of_equally_used_ones_the_earlier_which_are_the_parents() -> None:
    oldest = [candidate(n, 10, 1) for n in range(4)]
    assert worth_rewriting(oldest, 20) == [oldest[0].key, oldest[1].key]


def test_what_does_not_fit_makes_way_for_what_does() -> None:
    oldest = [candidate(0, 100, 9), candidate(1, 10, 1)]
    assert worth_rewriting(oldest, 50) == [oldest[1].key]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 3)), max_size=30), st.integers(0, 1000)
)
def test_only_used_blocks_within_the_budget(sizes: list[tuple[int, int]], budget: int) -> None:
    oldest = [candidate(n, *facts) for n, facts in enumerate(sizes)]
    chosen = worth_rewriting(oldest, budget)
    kept = [c for c in oldest if c.key in set(chosen)]
    assert [c.key for c in kept] == list(chosen)
    assert all(c.uses for c in kept)
    assert sum(c.size_bytes for c in kept) <= budget
    for left in oldest:  # whoever was used and left out had no room beside those used as often
        if left.uses and left.key not in set(chosen):
            before = sum(c.size_bytes for c in kept if (-c.uses, c.key) < (-left.uses, left.key))
            assert before + left.size_bytes > budget
