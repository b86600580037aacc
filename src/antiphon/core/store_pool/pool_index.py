"""Which blocks the other nodes of the pool hold, as far as they have told.

    begin ──► apply (KvDump, KvEvents of that life) ──► left

Laws: once all messages of a peer's life are heard, the index holds what the peer does; nothing of a
life that is over, or was never told of, is found.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from antiphon.core.router.block_table import BlockTable
from antiphon.core.router.kv_feed import FeedLimits, KvFeed
from antiphon.types import (
    BlockKey,
    Incarnation,
    KvDump,
    KvEvents,
    KvReplay,
    Seconds,
    StoreName,
    Tier,
)

POOLED_TIERS = (Tier.HOST, Tier.DISK)
"""What a node may have for others, fastest first."""
_SWEPT_LEAST = 512


class Holder(NamedTuple):
    """A peer that has a block, on its fastest tier."""

    name: StoreName
    tier: Tier


class Heard(NamedTuple):
    """What a message asks for (None: nothing is missing), and whose holders may have changed."""

    wish: KvReplay | None
    touched: Collection[BlockKey]


class PoolIndex:
    """Mutable. There are few peers, and many blocks."""

    def __init__(self, limits: FeedLimits | None = None) -> None:
        self._limits = limits or FeedLimits()
        self._table = BlockTable()
        self._feeds: dict[StoreName, KvFeed] = {}

    def begin(self, name: StoreName, incarnation: Incarnation) -> Collection[BlockKey]:
        """A life of the peer begins, nothing is known of it; what an earlier one had. Mutates."""
        lost = self.left(name)
        self._feeds[name] = KvFeed(incarnation, self._table, self._limits)
        return lost

    def left(self, name: StoreName) -> Collection[BlockKey]:
        """The peer is gone; what it had. Mutates."""
        feed = self._feeds.pop(name, None)
        if feed is None:
            return ()
        lost = _keys(feed)
        feed.close()
        self._table.sweep(_SWEPT_LEAST + 2 * len(lost))
        return lost

    def apply(
        self, name: StoreName, incarnation: Incarnation, message: KvDump | KvEvents, now: Seconds
    ) -> Heard:
        """Take in what that life of a peer says; another life's words change nothing. Mutates."""
        feed = self._feeds.get(name)
        if feed is None or feed.incarnation != incarnation:
            return Heard(None, ())
        match message:
            case KvDump():
                dumps, before = feed.dumps, _keys(feed) if message.ends else set()
                wish = feed.dump(message, now)
                touched = before | _keys(feed) if feed.dumps > dumps else set()
            case KvEvents():
                wish = feed.events(message, now)
                touched = {change.key for change in message.changes}
                if feed.next > message.first + len(message.changes):
                    touched |= _keys(feed)  # what had come too early counts now
        self._table.sweep(_SWEPT_LEAST + 2 * len(touched))
        return Heard(wish, touched)

    def has(self, name: StoreName, key: BlockKey) -> bool:
        """Whether that peer has the block."""
        feed = self._feeds.get(name)
        return feed is not None and any(key in slot.keys for slot in feed.shelves.slots.values())

    def in_memory(self, name: StoreName, key: BlockKey) -> bool:
        """Whether that peer has the block in its host memory."""
        feed = self._feeds.get(name)
        slot = None if feed is None else feed.shelves.slots.get(Tier.HOST)
        return slot is not None and key in slot.keys

    def blocks_in_memory(self, name: StoreName) -> int:
        """How many blocks the peer has in its host memory, as far as it has told."""
        feed = self._feeds.get(name)
        slot = None if feed is None else feed.shelves.slots.get(Tier.HOST)
        return 0 if slot is None else len(slot.keys)

    def holders(self, key: BlockKey) -> Sequence[Holder]:
        """Who has the block, by name. O(peers)."""
        return list(self._holders(key))

    def _holders(self, key: BlockKey) -> Iterator[Holder]:
        for name in sorted(self._feeds):
            slots = self._feeds[name].shelves.slots
            for tier in POOLED_TIERS:
                if tier in slots and key in slots[tier].keys:
                    yield Holder(name, tier)
                    break

    def held_by(self, name: StoreName, tier: Tier) -> frozenset[BlockKey]:
        """All that the peer is believed to have on a tier. Copies: for tests and tools."""
        feed = self._feeds.get(name)
        slot = None if feed is None else feed.shelves.slots.get(tier)
        return frozenset() if slot is None else frozenset(slot.keys)


def _keys(feed: KvFeed) -> set[BlockKey]:
    return set().union(*(slot.keys for slot in feed.shelves.slots.values()))
