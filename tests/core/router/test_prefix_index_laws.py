"""The index equals the truth after quiet, whatever happened before; and faulty parts are found."""

from collections.abc import Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kv_holder import Holder, Link

from antiphon.core.router import PrefixIndex
from antiphon.core.router.kv_feed import FeedLimits, KvFeed
from antiphon.types import STORE, BlockKey, KvChange, KvDump, KvEvents, KvReplay, Tier, WorkerId

WORKERS = [WorkerId("w0"), WorkerId("w1")]
NAMES = [*WORKERS, STORE]
KEYS = [bytes([number]) * 32 for number in range(7)]
STORE_TIERS = [Tier.HOST, Tier.DISK, Tier.REMOTE]
WHO = st.sampled_from([0, 0, 0, 1, 2, 2])
TIGHT = FeedLimits(early_changes=6, early_messages=3)


def reach(keys: Sequence[BlockKey], held: frozenset[BlockKey]) -> int:
    """The definition of a longest prefix."""
    return next((n for n, key in enumerate(keys) if key not in held), len(keys))


def assert_matches_what_is_held(index: PrefixIndex, keys: Sequence[BlockKey]) -> None:
    """`match` against its definition, on what the index itself holds."""
    found = index.match(keys)
    for worker in WORKERS:
        assert found.workers.get(worker, 0) == reach(keys, index.held_by(worker))
    assert all(found.workers.values()), "a worker that has nothing is listed"
    tiers = {tier: index.held_by(STORE, tier) for tier in STORE_TIERS}
    stored = reach(keys, frozenset().union(*tiers.values()))
    assert found.stored_blocks == stored
    spelled = [run.tier for run in found.store for _ in range(run.blocks)]
    assert spelled == [
        next(tier for tier in STORE_TIERS if key in tiers[tier]) for key in keys[:stored]
    ]


class Indexing(RuleBasedStateMachine):
    """Holders change and restart, gateways restart, links lose, repeat and reorder."""

    feed: type[KvFeed] = KvFeed

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.holders = [Holder(name) for name in NAMES]
        self.link = Link(self.holders)
        self.index = self.new_index()

    def new_index(self) -> PrefixIndex:
        index = PrefixIndex(TIGHT, self.feed)
        for holder in self.holders:
            self.link.send(holder, holder.dump())
        while self.link.under_way:
            self.link.deliver(index, 0, self.now)
        return index

    @rule(who=WHO, key=st.sampled_from(KEYS), tier=st.integers(0, 2), on=st.booleans())
    def change(self, who: int, key: BlockKey, tier: int, on: bool) -> None:
        holder = self.holders[who]
        holder.change(key, STORE_TIERS[tier] if holder.name == STORE else Tier.DEVICE, on)

    @rule(
        who=WHO,
        some=st.lists(st.sampled_from(KEYS), min_size=1, max_size=7),
        drop=st.integers(0, 9),
    )
    def burst(self, who: int, some: list[BlockKey], drop: int) -> None:
        """Each change in a message of its own, of which one may be lost."""
        holder = self.holders[who]
        for number, key in enumerate(some):
            on = all(held != key for held, _ in holder.blocks)
            tiers = [tier for held, tier in holder.blocks if held == key]
            tier = STORE_TIERS[len(some) % 3] if holder.name == STORE else Tier.DEVICE
            holder.change(key, tier if on else tiers[0], on)
            news = holder.news()
            if number != drop:
                self.link.send(holder, news)

    @rule(who=WHO)
    def say(self, who: int) -> None:
        self.link.send(self.holders[who], self.holders[who].news())

    @rule(who=st.integers(0, 2))
    def restart(self, who: int) -> None:
        self.holders[who].restart()
        self.link.send(self.holders[who], self.holders[who].dump())

    @rule(who=st.integers(0, 2))
    def lose(self, who: int) -> None:
        self.index.left(NAMES[who])
        self.holders[who].restart()

    @rule()
    def restart_the_gateway(self) -> None:
        self.link.under_way.clear()
        self.index = self.new_index()

    @precondition(lambda self: self.link.under_way)
    @rule(where=st.integers(0, 50), wait=st.sampled_from([0.0, 0.0, 0.3, 2.0]))
    def deliver(self, where: int, wait: float) -> None:
        self.now += wait
        self.link.deliver(self.index, where % len(self.link.under_way), self.now)

    @precondition(lambda self: self.link.under_way)
    @rule()
    def deliver_in_order(self) -> None:
        for _ in range(4):
            if self.link.under_way:
                self.link.deliver(self.index, 0, self.now)

    @precondition(lambda self: self.link.under_way)
    @rule(where=st.integers(0, 50))
    def drop(self, where: int) -> None:
        del self.link.under_way[where % len(self.link.under_way)]

    @precondition(lambda self: self.link.under_way)
    @rule(where=st.integers(0, 50))
    def repeat(self, where: int) -> None:
        name, life, messages = self.link.under_way[where % len(self.link.under_way)]
        if isinstance(messages[0], KvEvents) or messages[0].begins:
            self.link.under_way.append((name, life, list(messages)))

    @rule(keys=st.permutations(KEYS))
    def ask(self, keys: list[BlockKey]) -> None:
        assert_matches_what_is_held(self.index, keys)

    @rule(keys=st.permutations(KEYS))
    def fall_quiet(self, keys: list[BlockKey]) -> None:
        self.now = self.link.quiet(self.index, self.now)
        for holder in self.holders:
            for tier in Tier:
                truth = {key for key, where in holder.blocks if where is tier}
                assert self.index.held_by(holder.name, tier) == truth, holder.name
        assert self.index.counts.behind == 0
        assert self.index.counts.held == sum(len(holder.blocks) for holder in self.holders)
        different = {key for holder in self.holders for key, _ in holder.blocks}
        assert self.index.counts.blocks == len(different), "what is over is still there"
        assert_matches_what_is_held(self.index, keys)

    @invariant()
    def what_is_kept_is_bounded(self) -> None:
        counts = self.index.counts
        assert counts.held <= len(NAMES) * len(KEYS) * len(Tier)
        assert counts.holders <= len(NAMES)

    def teardown(self) -> None:
        self.fall_quiet(KEYS)


TestIndexing = Indexing.TestCase
TestIndexing.settings = settings(deadline=None, max_examples=150, stateful_step_count=40)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), max_size=40),
    st.integers(1, 5),
)
def test_more_blocks_than_the_limit_are_left_out_and_counted(
    drawn: list[tuple[BlockKey, bool]], limit: int
) -> None:
    index, worker = PrefixIndex(FeedLimits(blocks=limit)), Holder(WORKERS[0])
    for key, on in drawn:
        worker.change(key, Tier.DEVICE, on)
    for message in worker.news():
        assert index.apply(worker.name, worker.incarnation, message, 0.0) is None
    held = index.held_by(worker.name)
    assert len(held) <= limit
    if not index.counts.refused_total:
        assert held == {key for key, _ in worker.blocks}


def test_what_is_over_is_cleared_away_in_small_parts() -> None:
    index, worker = PrefixIndex(), Holder(WORKERS[0])
    keys = [number.to_bytes(32, "big") for number in range(5000)]
    for key in keys:
        worker.change(key, Tier.DEVICE, True)
    for message in worker.news():
        index.apply(worker.name, worker.incarnation, message, 0.0)
    index.left(worker.name)
    assert index.match(keys).workers == {}
    assert index.counts.blocks == 5000
    other = Holder(WORKERS[1])
    for number in range(10):
        index.apply(other.name, other.incarnation, other.so_far(), float(number))
    assert index.counts.blocks == 0


# ── negative controls ────────────────────────────────────────────────────────────────────────


class SeesNoGap(KvFeed):
    """Takes changes as they come."""

    def events(self, message: KvEvents, now: float) -> KvReplay | None:
        self.next = max(self.next, message.first)
        return super().events(message, now)


class NeverAsks(KvFeed):
    """Waits for what is missing."""

    def events(self, message: KvEvents, now: float) -> KvReplay | None:
        super().events(message, now)
        return None


class TakesOldDumps(KvFeed):
    """A dump replaces all, also one that others have overtaken."""

    def dump(self, message: KvDump, now: float) -> KvReplay | None:
        before, self.next = self.next, min(self.next, message.next)
        wish = super().dump(message, now)
        self.next = max(before, self.next)
        return wish


class TakesPartsAsChanges(KvFeed):
    """A dump's parts count at once, and replace nothing."""

    def dump(self, message: KvDump, now: float) -> KvReplay | None:
        changes = tuple(KvChange(key, tier, True) for key, tier in message.blocks)
        for key, tier, _ in changes:
            self.shelves.put(key, tier)
        self.next = max(self.next, message.next)
        return None


class KeepsWhatIsOver(KvFeed):
    """The blocks of an earlier life, or dump, stay."""

    def close(self) -> None:
        """Keeps all."""


@pytest.mark.parametrize(
    "feed", [SeesNoGap, NeverAsks, TakesOldDumps, TakesPartsAsChanges, KeepsWhatIsOver]
)
def test_control_the_law_finds(feed: type[KvFeed]) -> None:
    class Faulty(Indexing):
        pass

    Faulty.feed = feed
    found = settings(
        deadline=None,
        max_examples=300,
        stateful_step_count=40,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
    )
    with pytest.raises((AssertionError, ExceptionGroup, KeyError)):
        run_state_machine_as_test(Faulty, settings=found)
