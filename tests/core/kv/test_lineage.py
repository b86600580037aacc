"""Lineage (invariant I51): lossy KV and exact KV, and two kinds of lossy KV, share no name."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.kv import BlockKeys
from antiphon.core.kv.lineage import EXACT_LEVELS, lineage_in, lineage_of, with_lineage
from antiphon.store.codec import Level, parse_level
from antiphon.types.store_pool_config import LEVELS

NUMERICS = st.text(st.characters(codec="ascii", exclude_characters="+"), max_size=40)
PROFILES = st.binary(min_size=16, max_size=16)
KINDS = st.tuples(st.sampled_from(LEVELS), PROFILES)


def effective(kind: tuple[str, bytes]) -> object:
    """What of a level and a profile makes another KV."""
    level, profile = kind
    return "exact" if level in EXACT_LEVELS else (level, profile)


@given(numerics=NUMERICS, one=KINDS, other=KINDS, tokens=st.lists(st.integers(0, 99), max_size=3))
def test_two_kinds_of_kv_share_no_key_and_equal_ones_share_all(
    numerics: str, one: tuple[str, bytes], other: tuple[str, bytes], tokens: list[int]
) -> None:
    chains = []
    for level, profile in (one, other):
        names = BlockKeys(
            identity=b"m", numerics=with_lineage(numerics, level, profile), block_tokens=1
        )
        keys: list = []
        names.extend(keys, [7, *tokens], 1 + len(tokens))
        chains.append(keys)
    if effective(one) == effective(other):
        assert chains[0] == chains[1]
    else:
        assert not set(chains[0]) & set(chains[1])


@given(numerics=NUMERICS, kind=KINDS)
def test_a_numerics_id_says_its_lineage(numerics: str, kind: tuple[str, bytes]) -> None:
    said = with_lineage(numerics, *kind)
    assert lineage_in(said) == lineage_of(*kind)
    assert (said == numerics) == (kind[0] in EXACT_LEVELS) == (not lineage_of(*kind))


@given(numerics=st.text(max_size=60))
def test_what_is_no_lineage_is_none(numerics: str) -> None:
    assert lineage_in(numerics) == b""
    assert lineage_in(f"{numerics}+lossy:int8:00ff") == b""


@given(profile=PROFILES)
def test_a_levels_lineage_is_that_of_its_name(profile: bytes) -> None:
    levels: list[Level] = [parse_level(name) for name in LEVELS if name != "adaptive"]
    for level in levels:
        needed = profile if level.needs_profile else b""
        assert level.lineage(profile) == lineage_of(level.name, needed)
