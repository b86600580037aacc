"""A caller's way through a chain: in order, never behind a gap, a few blocks at a time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.tiers import BringUp, Load
from antiphon.core.tiers.bring_up import BLOCKS_A_TURN
from antiphon.types import BlockKey, Tier

TIERS = st.sampled_from([Tier.HOST, Tier.HOST, Tier.DISK, Tier.DISK, Tier.REMOTE, None])
CHAINS = st.lists(TIERS, max_size=40)
BEFORE = bytes(32)


def key(number: int) -> BlockKey:
    return (number + 1).to_bytes(32, "big")


@given(CHAINS, st.sets(st.integers(0, 39)), st.sets(st.integers(0, 39)))
@settings(deadline=None, max_examples=300)
def test_it_brings_the_longest_prefix_that_can_be_had_and_nothing_behind_it(
    chain: list[Tier | None], others: set[int], fails: set[int]
) -> None:
    """`others`: on its way for another caller. `fails`: does not come, whoever reads it."""
    keys = [key(number) for number in range(len(chain))]
    places = dict(zip(keys, chain, strict=True))
    loading = {key(number) for number in others if places.get(key(number)) is not Tier.HOST}
    failing = {key(number) for number in fails}

    def comes(one: BlockKey) -> bool:
        if places[one] is Tier.HOST:
            return True
        return one not in failing and (one in loading or places[one] is not None)

    whole = next((at for at, one in enumerate(keys) if not comes(one)), len(keys))
    way = BringUp(keys, BEFORE)
    read: list[Load] = []
    held = turns = 0
    while (turn := way.next_turn(lambda one: places[one], loading)) is not None:
        turns += 1
        assert turn.keys == tuple(keys[held : held + BLOCKS_A_TURN])
        assert [load.key for load in turn.begin if load.key not in loading] == [
            load.key for load in turn.begin
        ]
        assert {load.key for load in turn.begin} <= set(turn.missing)
        read += turn.begin
        for one in turn.missing:
            if comes(one):
                places[one] = Tier.HOST
        there = [places[one] is Tier.HOST for one in turn.keys]
        count = there.index(False) if False in there else len(there)
        held += count
        way.held(count)
    assert held == whole
    assert turns <= whole // BLOCKS_A_TURN + 1
    assert way.next_turn(lambda one: places[one], loading) is None
    for load in read:
        at = keys.index(load.key)
        assert load.parent == (keys[at - 1] if at else BEFORE)
        assert load.tier == chain[at]
        gap = next((n for n, tier in enumerate(chain) if tier is None and n not in others), None)
        assert gap is None or at < gap


def test_the_remote_is_asked_from_the_first_block_on_that_is_not_near() -> None:
    keys = [key(number) for number in range(4)]
    way = BringUp(keys, None)
    assert list(way.beyond(lambda one: one in (keys[0], keys[2]))) == keys[1:]
    assert list(way.beyond(lambda _: True)) == []
    assert BringUp([], None).next_turn(lambda _: Tier.DISK, ()) is None
