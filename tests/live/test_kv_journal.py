"""Whoever reads a journal to its end knows what its holder holds, whatever happened on the way."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.router import PrefixIndex
from antiphon.live import kv_journal
from antiphon.live.kv_journal import KvFeed, KvJournal, KvNews
from antiphon.types import (
    STORE,
    BlockKey,
    BlockRemoved,
    BlockStored,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    KvReplay,
    Tier,
    WorkerId,
)

LIFE = Incarnation("life")


def key(number: int) -> BlockKey:
    return number.to_bytes(32, "little")


class Holder:
    """Something that has blocks, and its journal."""

    def __init__(
        self,
        kept: int = kv_journal.KEPT_CHANGES,
        made: Callable[..., KvJournal] = KvJournal,
    ) -> None:
        self.held: set[BlockKey] = set()
        self.journal = made(lambda: [(key, Tier.DEVICE) for key in sorted(self.held)], kept=kept)

    def flip(self, number: int) -> None:
        """The block comes if it is not there, and goes if it is."""
        if key(number) in self.held:
            self.held.remove(key(number))
            self.journal.heard(BlockRemoved(key(number)))
        else:
            self.held.add(key(number))
            self.journal.heard(BlockStored(key(number), None))


async def all_news(feed: KvFeed) -> list[KvNews]:
    """What the feed says before it waits for something to happen."""
    said: list[KvNews] = []
    reading = feed.kv_news()
    while True:
        step = asyncio.ensure_future(anext(reading))
        for _ in range(3):
            await asyncio.sleep(0)
        if not step.done():
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
            return said
        said.append(step.result())


async def test_a_feed_begins_with_all_that_is_held_and_goes_on_with_what_changes() -> None:
    holder = Holder()
    for number in (1, 2, 3, 2):
        holder.flip(number)
    feed = holder.journal.feed()
    news = feed.kv_news()
    first = await anext(news)
    blocks = ((key(1), Tier.DEVICE), (key(3), Tier.DEVICE))
    assert first == KvDump(next=4, begins=True, ends=True, blocks=blocks)
    waiting = asyncio.ensure_future(anext(news))
    await asyncio.sleep(0)
    holder.flip(4)
    holder.flip(1)
    changes = (KvChange(key(4), Tier.DEVICE, True), KvChange(key(1), Tier.DEVICE, False))
    assert await waiting == KvEvents(first=4, changes=changes)


async def test_one_that_holds_nothing_says_so() -> None:
    [dump] = await all_news(Holder().journal.feed())
    assert dump == KvDump(next=0, begins=True, ends=True, blocks=())


async def test_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_journal, "MESSAGE_CHANGES", 3)
    holder = Holder()
    for number in range(7):
        holder.flip(number)
    feed = holder.journal.feed()
    parts = await all_news(feed)
    assert [
        (len(one.blocks), one.begins, one.ends) for one in parts if isinstance(one, KvDump)
    ] == [
        (3, True, False),
        (3, False, False),
        (1, False, True),
    ]
    for number in range(7):
        holder.flip(number)
    events = await all_news(feed)
    assert [(one.first, len(one.changes)) for one in events if isinstance(one, KvEvents)] == [
        (7, 3),
        (10, 3),
        (13, 1),
    ]


async def test_what_was_missed_is_said_again_and_what_is_forgotten_with_all_else() -> None:
    """vLLM's and Mooncake's indexers replay by number; what is gone there must come as a dump."""
    holder = Holder(kept=4)
    feed = holder.journal.feed()
    await all_news(feed)
    for number in range(6):
        holder.flip(number)
    [again] = await all_news(feed)  # it had lagged by more than is kept
    assert isinstance(again, KvDump)
    assert (again.next, len(again.blocks)) == (6, 6)
    feed.kv_replay(KvReplay(2))
    [again] = await all_news(feed)
    assert isinstance(again, KvEvents)
    assert (again.first, len(again.changes)) == (2, 4)
    for first in (1, 7, -1):  # forgotten, never there
        feed.kv_replay(KvReplay(first))
        [again] = await all_news(feed)
        assert isinstance(again, KvDump), first


async def test_readers_do_not_wait_for_each_other() -> None:
    holder = Holder()
    one, other = holder.journal.feed(), holder.journal.feed()
    await all_news(one)
    holder.flip(1)
    assert len(await all_news(one)) == 1
    [dump] = await all_news(other)
    assert isinstance(dump, KvDump)
    assert len(dump.blocks) == 1


async def test_memory_is_bounded_and_a_reader_that_left_costs_nothing() -> None:
    holder = Holder(kept=8)
    waiting = asyncio.ensure_future(anext(holder.journal.feed().kv_news()))
    await waiting
    gone = holder.journal.feed()
    await all_news(gone)
    for number in range(1000):
        holder.flip(number % 3)
    assert len(holder.journal._ring) == 8
    assert holder.journal._waiting == []
    assert (holder.journal.oldest, holder.journal.next) == (992, 1000)


class Forgetful(KvJournal):
    """A negative control: says that it still has what it has overwritten."""

    @property
    def oldest(self) -> int:
        return 0


class Hasty(KvJournal):
    """A negative control: its dump is numbered as if one more change were in it."""

    def dump(self) -> Any:
        for part in super().dump():
            yield KvDump(next=part.next + 1, begins=part.begins, ends=part.ends, blocks=part.blocks)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 11)),
        st.tuples(st.just("read"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["lose", "repeat", "overtake"]), st.just(0)),
        st.tuples(st.just("anew"), st.just(0)),
    ),
    max_size=60,
)


async def index_after(made: Callable[..., KvJournal], steps: list[tuple[str, int]]) -> bool:
    """Whether the index equals the truth after quiet. The link loses, repeats and reorders."""
    holder, index = Holder(kept=6, made=made), PrefixIndex()
    worker, life, now = WorkerId("w"), 0, 0.0
    feed, on_its_way = holder.journal.feed(), []

    def hear(message: KvNews) -> None:
        wish = index.apply(worker, Incarnation(f"life-{life}"), message, now)
        if wish is not None:
            feed.kv_replay(wish)

    for deed, number in steps:
        now += 0.1
        match deed:
            case "flip":
                holder.flip(number)
            case "read":
                on_its_way += await all_news(feed)
                for message in on_its_way[:number]:
                    hear(message)
                del on_its_way[:number]
            case "lose" if on_its_way:
                on_its_way.pop()
            case "repeat" if on_its_way:
                on_its_way.append(on_its_way[0])
            case "overtake" if len(on_its_way) > 1:
                on_its_way.reverse()
            case "anew":
                life, on_its_way, feed = life + 1, [], holder.journal.feed()
            case _:
                pass
    for message in on_its_way:
        hear(message)
    holder.flip(99)  # a last word shows what is missing
    for _ in range(10):
        now += 10.0
        for message in await all_news(feed):
            hear(message)
    return index.held_by(worker) == holder.held


@given(steps=STEPS)
@settings(deadline=None, max_examples=200)
def test_index_equals_truth_after_quiet(steps: list[tuple[str, int]]) -> None:
    """vLLM's events over PUB sockets are lost silently; Dynamo's index kept blocks of the dead."""
    assert asyncio.run(index_after(KvJournal, steps))


@pytest.mark.parametrize(
    ("faulty", "steps"),
    [
        (
            Forgetful,
            [("read", 1), *[("flip", n) for n in range(12)], *[("flip", n) for n in range(7)]],
        ),
        (Hasty, [("flip", 1), ("read", 1), ("flip", 2), ("read", 1)]),
    ],
)
def test_a_faulty_journal_is_found(faulty: type[KvJournal], steps: list[tuple[str, int]]) -> None:
    assert not asyncio.run(index_after(faulty, steps))


@given(
    before=st.sets(st.integers(0, 11)),
    flips=st.lists(st.lists(st.integers(0, 11), max_size=4), max_size=8),
)
@settings(deadline=None, max_examples=200)
def test_a_dump_that_is_read_while_all_changes_leads_to_the_truth(
    before: set[int], flips: list[list[int]]
) -> None:
    """Parts are made as they are read; what changes between them is said by the changes."""

    async def run() -> None:
        held = dict.fromkeys(sorted(map(key, before)))

        def now() -> Iterator[tuple[BlockKey, Tier]]:
            return ((one, Tier.DEVICE) for one in list(held) if one in held)

        journal, index, between = KvJournal(now), PrefixIndex(), list(flips)
        feed = journal.feed()
        news = feed.kv_news()
        while True:
            part = await anext(news)
            assert isinstance(part, KvDump)
            assert index.apply(WorkerId("w"), LIFE, part, 0.0) is None
            if part.ends:
                break
            for number in between.pop(0) if between else ():
                stored = key(number) not in held
                held[key(number)] = held.pop(key(number), None)
                if not stored:
                    del held[key(number)]
                journal.note(KvChange(key(number), Tier.DEVICE, stored))
        for message in await all_news(feed):
            assert index.apply(WorkerId("w"), LIFE, message, 0.0) is None
        assert index.held_by(WorkerId("w")) == set(held)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_journal, "MESSAGE_CHANGES", 2)
        asyncio.run(run())


async def test_a_store_s_tiers_are_told_apart() -> None:
    journal = KvJournal(lambda: [(key(1), Tier.HOST), (key(1), Tier.DISK)])
    index = PrefixIndex()
    feed = journal.feed()
    for message in await all_news(feed):
        index.apply(STORE, LIFE, message, 0.0)
    journal.note(KvChange(key(1), Tier.HOST, False))
    for message in await all_news(feed):
        index.apply(STORE, LIFE, message, 0.0)
    assert index.held_by(STORE, Tier.HOST) == frozenset()
    assert index.held_by(STORE, Tier.DISK) == {key(1)}
