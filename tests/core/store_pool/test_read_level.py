"""At which level a store reads another one's blocks: never at one that would not come, and both
sides know when they are set unlike each other."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.kv.lineage import lineage_of
from antiphon.core.said_of_links import told_problem
from antiphon.core.store_pool import (
    FetchTerms,
    LevelBook,
    LevelGuess,
    LevelSetting,
    Sender,
    read_level,
)
from antiphon.types import StoreName
from antiphon.types.store_pool_config import LEVELS

ONE, OTHER = bytes(16), bytes([1]) * 16
PEER, STRANGER = StoreName("b"), StoreName("c")


settings = st.builds(
    LevelSetting, st.sampled_from(LEVELS), st.sampled_from([b"", ONE, OTHER])
).filter(lambda one: bool(one.profile) or not one.level.startswith("entropy"))


def sent(name: StoreName) -> Sender:
    return Sender(name=name, bytes_per_s=1e6, measured=True)


@pytest.mark.parametrize(
    ("here", "there", "level", "problem"),
    [
        (LevelSetting("raw"), LevelSetting("raw"), "raw", ""),
        (LevelSetting("raw"), LevelSetting("int8"), "raw", "raw here and int8 there"),
        (LevelSetting("int8"), LevelSetting("raw"), "raw", "int8 here and raw there"),
        (LevelSetting("int8"), LevelSetting("int4"), "int8", "int8 here and int4 there"),
        (LevelSetting("int8", ONE), LevelSetting("int8", OTHER), "int8", ""),
        (LevelSetting("entropy-2", ONE), LevelSetting("entropy-2", ONE), "entropy-2", ""),
        (LevelSetting("entropy-2", ONE), LevelSetting("entropy-2", OTHER), "raw", "profile"),
        (LevelSetting("entropy-2", ONE), LevelSetting("int8"), "raw", "int8 there"),
        (LevelSetting("adaptive", ONE), LevelSetting("adaptive"), "adaptive", "profile"),
        (LevelSetting("adaptive", ONE), LevelSetting("raw", ONE), "raw", "raw there"),
    ],
)
def test_what_two_settings_come_to(
    here: LevelSetting, there: LevelSetting, level: str, problem: str
) -> None:
    found = read_level(here, there)
    assert found.level == level
    assert problem in found.problem
    assert bool(problem) == bool(found.problem)


@given(here=settings, there=settings)
def test_both_sides_know_that_they_are_unlike_and_a_report_has_room_for_it(
    here: LevelSetting, there: LevelSetting
) -> None:
    found, back = read_level(here, there), read_level(there, here)
    assert bool(found.problem) == bool(back.problem)
    assert told_problem(found.problem) == found.problem
    assert found.level in (here.level, "raw")


@given(here=settings, there=settings, level=st.sampled_from([*LEVELS]))
def test_nothing_is_asked_for_that_can_not_come(
    here: LevelSetting, there: LevelSetting, level: str
) -> None:
    found = read_level(here, there)
    assert found.allows("raw")
    if level != "raw" and found.allows(level):
        assert there.level != "raw"
        assert here.level in (level, "adaptive")
        assert not level.startswith("entropy") or here.profile == there.profile != b""


@pytest.mark.parametrize("there", [LevelSetting("adaptive"), LevelSetting("adaptive", OTHER)])
def test_adaptive_counts_with_what_the_peer_can_encode(there: LevelSetting) -> None:
    """A slow link, a due time that only the smallest level meets, and a peer that lacks it."""
    guesses = [
        LevelGuess(name=name, rank=rank, block_bytes=size, encode_s=0.0, decode_s=0.0)
        for name, rank, size in (("raw", 0, 1e6), ("int4", 1, 3e5), ("entropy-3", 2, 1e5))
    ]
    lineage = lineage_of("adaptive", ONE)
    book = LevelBook("adaptive", guesses, block_tokens=64, lineage=lineage, profile=ONE)
    terms = FetchTerms(lineage=lineage, due=inf, compute_s=None)
    in_time = FetchTerms(lineage=lineage, due=8 * 1.5e5 / 1e6, compute_s=None)
    assert book.choose(8, in_time, 0, sent(PEER), 0.0).level == "entropy-3"
    book.meets(PEER, there)
    assert book.choose(8, in_time, 0, sent(PEER), 0.0).level == "int4"
    assert book.choose(8, in_time, 0, sent(STRANGER), 0.0).level == "entropy-3"
    assert book.level_for(PEER, "entropy-3") == "raw"
    book.meets(PEER, LevelSetting("raw"))
    assert book.choose(8, terms, 0, sent(PEER), 0.0).level == "raw"
    book.meets(PEER, LevelSetting("adaptive", ONE))
    assert book.choose(8, in_time, 0, sent(PEER), 0.0).level == "entropy-3"
