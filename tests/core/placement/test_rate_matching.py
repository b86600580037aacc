"""Rate matching against all that could be chosen."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.placement import Side, matched, shared_per_s

SIDES = st.builds(
    Side,
    per_s=st.integers(1, 60).map(lambda tenths: tenths / 8),
    devices=st.integers(1, 8),
    cost=st.integers(1, 40).map(lambda quarters: quarters / 4),
)


def worth(prefill: Side, decode: Side, x: int, y: int) -> Fraction:
    served = min(x * Fraction(prefill.per_s), y * Fraction(decode.per_s))
    return served / (x * Fraction(prefill.cost) + y * Fraction(decode.cost))


@settings(deadline=None, max_examples=200)
@given(SIDES, SIDES, st.integers(1, 20))
def test_nothing_that_fits_serves_more_for_its_cost(
    prefill: Side, decode: Side, most_devices: int
) -> None:
    all_of_them = [
        (x, y)
        for x in range(1, most_devices + 1)
        for y in range(1, most_devices + 1)
        if x * prefill.devices + y * decode.devices <= most_devices
    ]
    found = matched(prefill, decode, most_devices)
    assert bool(found) == bool(all_of_them)
    if found:
        best = max(worth(prefill, decode, x, y) for x, y in all_of_them)
        assert float(worth(prefill, decode, *found[0])) == float(best)


@settings(deadline=None, max_examples=100)
@given(SIDES, SIDES, st.integers(2, 20))
def test_what_is_kept_falls_in_worth_and_names_no_ratio_twice(
    prefill: Side, decode: Side, most_devices: int
) -> None:
    found = matched(prefill, decode, most_devices, keep=5)
    worths = [float(worth(prefill, decode, x, y)) for x, y in found]
    assert all(a >= b - 1e-9 for a, b in pairwise(worths))
    assert len({Fraction(x, y) for x, y in found}) == len(found) <= 5


def test_a_slow_phase_gets_more_workers() -> None:
    prefill = Side(per_s=3.0, devices=1, cost=1)
    decode = Side(per_s=1.0, devices=1, cost=1)
    assert matched(prefill, decode, 8)[0] == (1, 3)
    assert matched(decode, prefill, 8)[0] == (3, 1)


def test_dear_workers_wait_for_nobody() -> None:
    # 2 of each serve 4/s; a third, cheap decode worker would not help, a dear prefill worker less.
    prefill = Side(per_s=2.0, devices=4, cost=100)
    decode = Side(per_s=1.5, devices=1, cost=1)
    assert matched(prefill, decode, 8)[0] == (1, 2)


@settings(deadline=None, max_examples=200)
@given(st.floats(0.1, 50), st.floats(0.1, 50), st.floats(0.1, 50))
def test_help_from_the_decode_pool_never_hurts_nor_does_wonders(
    prefill: float, decode: float, local: float
) -> None:
    shared = shared_per_s(prefill, decode, local)
    assert min(prefill, decode) - 1e-9 <= shared <= decode + 1e-9
    # Enough time: the prompts that the prefill pool can't compute, and all answers.
    rest = max(0.0, shared - prefill)
    assert rest / local + shared / decode <= 1 + 1e-6


def test_no_help_without_time_for_it() -> None:
    assert shared_per_s(1.0, 2.0, 0.0) == 1.0
    assert shared_per_s(3.0, 2.0, 5.0) == 2.0
