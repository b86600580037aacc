"""What can't be is found where it is said."""

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.said_of_kv import STORES_TIERS, WORKERS_TIERS, wrong_in_answer, wrong_in_kv
from antiphon.types import (
    KvChange,
    KvDump,
    KvEvents,
    StoreAnswer,
    StoreAsk,
    StoreOp,
    Tier,
    TierStats,
)

KEY = bytes(32)
STATS = TierStats(tier=Tier.HOST, blocks=1, used_bytes=2, limit_bytes=3, dropped=(("quota", 4),))
LOOKUP = StoreAsk(op=StoreOp.LOOKUP, keys=(KEY, KEY))
FOUND = StoreAnswer(tiers=((Tier.HOST,), ()), stats=(STATS, replace(STATS, tier=Tier.DISK)))


def dump(key: bytes = KEY, tier: Tier = Tier.DEVICE, next: int = 0) -> KvDump:
    return KvDump(next=next, begins=True, ends=True, blocks=((key, tier),))


def events(key: bytes = KEY, tier: Tier = Tier.DEVICE, first: int = 0) -> KvEvents:
    return KvEvents(first=first, changes=(KvChange(key, tier, True),))


@pytest.mark.parametrize("said", [dump, events])
def test_what_a_holder_says(said) -> None:
    assert wrong_in_kv(said(), WORKERS_TIERS) == ""
    assert wrong_in_kv(said(tier=Tier.DISK), STORES_TIERS) == ""
    assert "31 bytes" in wrong_in_kv(said(bytes(31)), WORKERS_TIERS)
    assert "tier host" in wrong_in_kv(said(tier=Tier.HOST), WORKERS_TIERS)
    assert "tier device" in wrong_in_kv(said(), STORES_TIERS)


def test_numbers() -> None:
    assert wrong_in_kv(dump(next=-1), WORKERS_TIERS) == "next is -1"
    assert "first is" in wrong_in_kv(events(first=2**63), WORKERS_TIERS)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"tiers": ((Tier.HOST,),)}, "2 keys"),
        ({"tiers": ((Tier.DEVICE,), ())}, "where no store has any"),
        ({"blocks": -1}, "blocks is -1"),
        ({"stats": (STATS, STATS)}, "there twice"),
        ({"stats": (replace(STATS, tier=Tier.DEVICE),)}, "none of a store"),
        ({"stats": (replace(STATS, leases=-3),)}, "leases is -3"),
        ({"stats": (replace(STATS, dropped=(("a\nb", 1),)),)}, "no word"),
        ({"stats": (replace(STATS, dropped=(("x" * 65, 1),)),)}, "no word"),
        ({"stats": (replace(STATS, dropped=(("why", -1),)),)}, "dropped (why) is -1"),
        ({"stats": (replace(STATS, dropped=(("why", 1),) * 65),)}, "65 reasons"),
        ({"stats": (replace(STATS, block_s=-1.0),)}, "a block comes in -1.0 s"),
        ({"stats": (replace(STATS, block_s=nan),)}, "a block comes in nan s"),
        ({"stats": (replace(STATS, block_s=inf),)}, "a block comes in inf s"),
    ],
)
def test_what_a_store_answers(changed, problem: str) -> None:
    assert wrong_in_answer(FOUND, LOOKUP) == ""
    assert problem in wrong_in_answer(replace(FOUND, **changed), LOOKUP)


def test_a_store_may_say_why_it_did_not_look() -> None:
    assert wrong_in_answer(StoreAnswer(problem="no"), LOOKUP) == ""


@given(key=st.binary(max_size=64), tier=st.sampled_from(Tier), first=st.integers())
@settings(deadline=None, max_examples=100)
def test_nothing_is_raised_and_only_possible_things_pass(
    key: bytes, tier: Tier, first: int
) -> None:
    possible = len(key) == 32 and tier in STORES_TIERS and 0 <= first <= 2**62
    assert (wrong_in_kv(events(key, tier, first), STORES_TIERS) == "") == possible
