"""Delta debugging: what is left fails, nothing of it can be left out, and few tests are needed."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.sim.explore.ddmin import minimal

ITEMS = st.lists(st.integers(0, 30), unique=True, max_size=14).map(tuple)


@settings(deadline=None, max_examples=200)
@given(ITEMS, st.data())
def test_what_is_to_blame_is_left_and_nothing_else(
    items: tuple[int, ...], data: st.DataObject
) -> None:
    blamed = data.draw(st.sets(st.sampled_from(items))) if items else set()
    tests = 0

    def fails(some: tuple[int, ...]) -> bool:
        nonlocal tests
        tests += 1
        return blamed <= set(some)

    assert minimal(items, fails) == tuple(one for one in items if one in blamed)
    assert tests <= len(items) ** 2 + 3 * len(items) + 1


@settings(deadline=None, max_examples=200)
@given(ITEMS, st.randoms(use_true_random=False))
def test_whatever_fails_for_any_reason_no_single_one_can_be_left_out(
    items: tuple[int, ...], chance
) -> None:
    """The predicate is any function of the items: not monotone."""
    verdicts: dict[tuple[int, ...], bool] = {items: True}

    def fails(some: tuple[int, ...]) -> bool:
        return verdicts.setdefault(some, chance.random() < 0.3)

    left = minimal(items, fails)
    assert fails(left)
    for at in range(len(left)):
        assert not fails(left[:at] + left[at + 1 :])


def test_one_that_is_to_blame_is_found_in_few_tests() -> None:
    counted: list[int] = []

    def counting(blamed: int) -> Callable[[tuple[int, ...]], bool]:
        return lambda some: not counted.append(len(some)) and blamed in some

    assert minimal(tuple(range(1024)), counting(700)) == (700,)
    assert len(counted) < 60
