"""What a slower tier has and is to be written to it: bounded, in order, and said as it happens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.tiers import SlowerTier, tiers_to_write
from antiphon.core.tiers.slower_tier import WRITTEN_AT_ONCE
from antiphon.types import BlockKey, KvChange, Tier

KEYS = st.integers(0, 9).map(lambda number: bytes([number]) * 32)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), KEYS),
        st.tuples(st.just("found"), KEYS),
        st.tuples(st.just("gone"), KEYS),
        st.tuples(st.just("clear"), KEYS),
        st.tuples(st.sampled_from(["take", "wrote"]), st.just(b"")),
    ),
    max_size=80,
)


@given(STEPS, st.integers(1, 5), st.one_of(st.none(), st.integers(1, 4)))
@settings(deadline=None, max_examples=300)
def test_laws(steps: list[tuple[str, BlockKey]], most: int, most_blocks: int | None) -> None:
    """Bounded queues; first offered, first written; nothing that is there waits; who follows the
    changes knows what is there; each offer is written, dropped and counted, or still waits."""
    told: list[KvChange] = []
    tier = SlowerTier(Tier.DISK, listen=told.append, most_waiting=most, most_blocks=most_blocks)
    host = {bytes([number]) * 32 for number in range(10)}
    waiting: list[BlockKey] = []
    writing: list[BlockKey] = []
    there: dict[BlockKey, None] = {}
    full = gone = 0
    for what, key in steps:
        match what:
            case "offer":
                host.add(key)
                if key not in there and key not in waiting:
                    if len(waiting) < most:
                        waiting.append(key)
                    else:
                        full += 1
                assert tier.offer(key) == bool(waiting)
            case "found":
                tier.found(key)
                waiting = [one for one in waiting if one != key]
                if key not in there and most_blocks is not None and len(there) == most_blocks:
                    del there[next(iter(there))]
                there.setdefault(key)
            case "gone":
                tier.gone([key])
                there.pop(key, None)
            case "clear":
                host.discard(key)
                if key[0] % 2:  # else it was evicted, which nobody is told
                    tier.prune(host)
                    waiting = [one for one in waiting if one in host]
            case "take":
                turn = waiting[:WRITTEN_AT_ONCE]
                waiting = waiting[WRITTEN_AT_ONCE:]
                writing = [one for one in turn if one in host]
                gone += len(turn) - len(writing)
                assert tier.take(lambda one: one if one in host else None) == writing
            case "wrote":
                tier.wrote()
                writing = []
        assert list(tier.keys) == list(there)
        assert all(key in tier for key in there)
        assert tier.waiting == len(waiting) <= most
        assert not set(waiting) & set(there)
        assert (tier.dropped_full, tier.dropped_gone) == (full, gone)
        everything = [bytes([number]) * 32 for number in range(10)]
        assert set(tier.unsettled(everything)) == {*waiting, *writing}
    known: set[BlockKey] = set()
    for change in told:
        assert (change.key in known) != change.stored
        known ^= {change.key}
    assert known == set(there)


@pytest.mark.parametrize(
    ("came_from", "written", "elsewhere"),
    [
        (Tier.DEVICE, (Tier.DISK, Tier.REMOTE), (Tier.REMOTE,)),
        (Tier.REMOTE, (Tier.DISK,), ()),
        (Tier.PEER, (Tier.DISK,), ()),
        (Tier.DISK, (), ()),
    ],
)
def test_a_block_goes_where_it_is_not_and_is_found_sooner(
    came_from: Tier, written: tuple[Tier, ...], elsewhere: tuple[Tier, ...]
) -> None:
    both = (Tier.DISK, Tier.REMOTE)
    assert tiers_to_write(came_from, both) == written
    assert tiers_to_write(came_from, both, at_home=False) == elsewhere, "its home has the disk"
    assert tiers_to_write(came_from, ()) == ()
    assert tiers_to_write(Tier.DEVICE, (Tier.REMOTE,)) == (Tier.REMOTE,)
