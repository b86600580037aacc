"""Homes: the same everywhere, in proportion to weights, and moved by nobody but who must move."""

from collections import Counter
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.store_pool import home_of
from antiphon.types import BlockKey, StoreName

NAMES = [StoreName(f"box{number}") for number in range(6)]
KEYS = [blake2b(bytes([n % 256, n // 256]), digest_size=32).digest() for n in range(3000)]
pools = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 1000), min_size=1)


def homes(weights: dict[StoreName, float], keys: list[BlockKey] = KEYS) -> dict[BlockKey, str]:
    return {key: home_of(key, weights) for key in keys}


@given(pools, st.sampled_from(NAMES), st.integers(1, 1000))
def test_i47_who_comes_takes_keys_and_nothing_else_moves(
    pool: dict[StoreName, float], name: StoreName, weight: int
) -> None:
    without = {one: w for one, w in pool.items() if one != name}
    if not without:
        return
    before, after = homes(without, KEYS[:400]), homes({**without, name: weight}, KEYS[:400])
    assert all(after[key] in (before[key], name) for key in before)


@given(pools)
def test_the_order_in_which_a_pool_is_known_says_nothing(pool: dict[StoreName, float]) -> None:
    turned = dict(reversed(pool.items()))
    assert homes(pool, KEYS[:100]) == homes(turned, KEYS[:100])


@pytest.mark.parametrize("weights", [(1, 1, 1, 1), (1, 2, 3, 4), (100, 1, 1, 50)])
def test_a_node_is_home_to_its_share(weights: tuple[int, ...]) -> None:
    """Within four standard deviations of a binomial."""
    pool = dict(zip(NAMES, map(float, weights), strict=False))
    counts = Counter(homes(pool).values())
    for name, weight in pool.items():
        share = weight / sum(weights)
        bound = 4 * (share * (1 - share) / len(KEYS)) ** 0.5
        assert abs(counts[name] / len(KEYS) - share) <= bound


def test_a_node_that_comes_takes_its_share_and_no_more() -> None:
    before = homes(dict.fromkeys(NAMES[:4], 1.0))
    after = homes(dict.fromkeys(NAMES[:5], 1.0))
    moved = sum(before[key] != after[key] for key in KEYS) / len(KEYS)
    assert moved == pytest.approx(1 / 5, abs=4 * (0.16 / len(KEYS)) ** 0.5)


def test_homes_are_frozen() -> None:
    """Stores of different releases are in one pool."""
    pool = {StoreName("a"): 1.0, StoreName("b"): 2.0, StoreName("c"): 3.0}
    assert "".join(home_of(key, pool) for key in KEYS[:24]) == FROZEN


FROZEN = "bccabbbbbbabccbccbaabccb"
