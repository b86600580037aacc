"""Who holds which blocks of KV, and how much of a prompt each one has.

    begin, apply (KvDump, KvEvents), left ──► a KvFeed for each holder ──► BlockTable ──► match

Laws:

* once all messages of a holder are heard, the index holds what the holder does, whatever was lost,
  repeated or overtaken before, and however often either side began anew;
* nothing of a life that is over, or was never told of, is ever matched;
* memory is bounded: by blocks of each holder, and by what is kept of changes that came too early.

The holders are few and trusted to be some; the blocks are many. A match costs one look-up a block,
whatever their number. A worker reaches the store of its host, by its name (`core.host_names`), and
what it says itself of slower tiers than its own memory, which lies beside it alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from antiphon.core.host_names import is_store, store_of
from antiphon.types import (
    STORE,
    BlockKey,
    Incarnation,
    IndexCounts,
    KvDump,
    KvEvents,
    KvReplay,
    Seconds,
    Tier,
    WorkerId,
)

from .block_table import BlockTable
from .held_blocks import NOTHING_HELD, HeldBlocks
from .kv_feed import FeedLimits, KvFeed

_SWEPT_LEAST = 512
_FASTEST_FIRST = tuple(Tier)
STANDARD_FEED_LIMITS = FeedLimits()


class StoredRun(NamedTuple):
    """So many consecutive blocks that lie on this tier of the store, or a faster copy of them."""

    tier: Tier
    blocks: int


@dataclass(frozen=True, slots=True)
class Holdings:
    """How much of one prompt is where, in blocks from its beginning.

    `workers`: of each that has any, in its own memory. `store`: its longest prefix in the store of
    the gateway's host, run by run, each block on the fastest tier that has it.
    """

    workers: HeldBlocks
    store: tuple[StoredRun, ...] = ()

    @property
    def stored_blocks(self) -> int:
        """The length of the prefix that the store has."""
        return sum(run.blocks for run in self.store)


Reach: TypeAlias = tuple[tuple[int, Tier], ...]
"""What can be fetched from: a bit of the table and the tier that it stands for, each."""


class _View(NamedTuple):
    """The bits of the slots that count now: of workers, of the tiers of the store here and of those
    on other hosts, and of tiers that lie beside one worker. `spread`: there are workers elsewhere.
    """

    each: int
    together: int
    bit_of: dict[WorkerId, int]
    worker_of: dict[int, WorkerId]
    tier_of: dict[int, Tier]
    stores: dict[WorkerId, dict[int, Tier]]
    beside: dict[WorkerId, dict[int, Tier]]
    spread: bool


class PrefixIndex:
    """Mutable. `apply` costs O(1) a change, and clears away a bounded part of what is over."""

    def __init__(
        self, limits: FeedLimits = STANDARD_FEED_LIMITS, feed: type[KvFeed] = KvFeed
    ) -> None:
        self._limits, self._feed = limits, feed
        self._table = BlockTable()
        self._feeds: dict[WorkerId, KvFeed] = {}
        self._heard: set[WorkerId] = set()
        self._view: _View | None = None
        self._gone_refused = self._gone_dumps = self._replays = 0

    def __bool__(self) -> bool:
        """Whether anybody has told what it has."""
        return bool(self._heard)

    def hears(self, holder: WorkerId) -> bool:
        """Whether this holder has told what it has, if only that it is nothing."""
        return holder in self._heard

    @property
    def counts(self) -> IndexCounts:
        """What is in it. Does not mutate."""
        feeds = self._feeds.values()
        return IndexCounts(
            holders=len(feeds),
            behind=sum(feed.behind for feed in feeds),
            blocks=len(self._table),
            held=sum(feed.shelves.blocks for feed in feeds),
            refused_total=self._gone_refused + sum(feed.refused_total for feed in feeds),
            replays_total=self._replays,
            dumps_total=self._gone_dumps + sum(feed.dumps for feed in feeds),
        )

    def life_of(self, holder: WorkerId) -> Incarnation | None:
        """The life of the holder that is told of; None: it is not there."""
        feed = self._feeds.get(holder)
        return None if feed is None else feed.incarnation

    def held_by(self, holder: WorkerId, tier: Tier = Tier.DEVICE) -> frozenset[BlockKey]:
        """All blocks that the holder is believed to have on a tier. Copies: for tests and tools."""
        feed = self._feeds.get(holder)
        slot = None if feed is None else feed.shelves.slots.get(tier)
        return frozenset() if slot is None else frozenset(slot.keys)

    # ── facts ────────────────────────────────────────────────────────────────────────────────

    def begin(self, holder: WorkerId, incarnation: Incarnation) -> None:
        """A life of the holder begins: nothing is known of it. Mutates. An earlier one is over."""
        self.left(holder)
        self._feeds[holder] = self._feed(incarnation, self._table, self._limits)
        self._view = None

    def left(self, holder: WorkerId) -> None:
        """The holder is gone, and all that it had. Mutates, at once and in O(1)."""
        feed = self._feeds.pop(holder, None)
        if feed is not None:
            feed.close()
            self._heard.discard(holder)
            self._gone_refused += feed.refused_total
            self._gone_dumps += feed.dumps
            self._view = None

    def apply(
        self, holder: WorkerId, incarnation: Incarnation, message: KvDump | KvEvents, now: Seconds
    ) -> KvReplay | None:
        """Take in what a holder says. Mutates. Returns what it must be asked to say again.

        A life that is not known begins with that, and ends the one before.
        """
        feed = self._feeds.get(holder)
        if feed is None or feed.incarnation != incarnation:
            self.begin(holder, incarnation)
            feed = self._feeds[holder]
        before = (feed.shelves, len(feed.shelves.slots))
        match message:
            case KvDump():
                size, wish = len(message.blocks), feed.dump(message, now)
            case KvEvents():
                size, wish = len(message.changes), feed.events(message, now)
        self._heard.add(holder)
        if (feed.shelves, len(feed.shelves.slots)) != before:
            self._view = None
        self._table.sweep(_SWEPT_LEAST + 2 * size)
        self._replays += wish is not None
        return wish

    # ── questions ────────────────────────────────────────────────────────────────────────────

    def match(self, keys: Iterable[BlockKey]) -> Holdings:
        """How much of a prompt each worker and the store have. Does not mutate.

        `keys` are those of its blocks from position 0 on. No more are taken than somebody has, and
        one: they may be computed as they are asked for.
        """
        view = self._view or self._look()
        if not (view.each or view.together):
            return Holdings(NOTHING_HELD)
        walk = self._table.walk(keys, view.each, view.together)
        workers = HeldBlocks(walk.ends, view.bit_of, view.worker_of)
        return Holdings(workers, self._fastest(walk.runs, view.tier_of))

    @property
    def reach_differs(self) -> bool:
        """Whether one worker may reach what another does not."""
        view = self._view or self._look()
        return view.spread or bool(view.beside)

    def reach_of(self, worker: WorkerId) -> Reach:
        """What this worker can fetch from: the store of its host, and what lies beside it. Good
        until the next fact. Does not mutate."""
        view = self._view or self._look()
        store = store_of(worker)
        tier_of = view.tier_of if store == STORE else view.stores.get(store, {})
        return (*tier_of.items(), *view.beside.get(worker, {}).items())

    def reached(self, reach: Reach, keys: Iterable[BlockKey]) -> tuple[StoredRun, ...]:
        """The longest prefix in what can be fetched from there. Does not mutate."""
        tier_of = dict(reach)
        walk = self._table.walk(keys, 0, sum(tier_of))
        return self._fastest(walk.runs, tier_of)

    def beside(self, keys: Iterable[BlockKey]) -> HeldBlocks:
        """How much of a prompt lies beside each worker, tier by tier. Does not mutate."""
        view = self._view or self._look()
        worker_of = {bit: worker for worker, bits in view.beside.items() for bit in bits}
        if not worker_of:
            return NOTHING_HELD
        walk = self._table.walk(keys, sum(worker_of))
        return HeldBlocks(walk.ends, {}, worker_of)

    @staticmethod
    def _fastest(runs: list[tuple[int, int]], tier_of: dict[int, Tier]) -> tuple[StoredRun, ...]:
        merged: list[StoredRun] = []
        for bits, blocks in runs:
            tiers = [tier for bit, tier in tier_of.items() if bits & bit]
            fastest = min(tiers, key=_FASTEST_FIRST.index)
            if merged and merged[-1].tier is fastest:
                blocks += merged.pop().blocks
            merged.append(StoredRun(fastest, blocks))
        return tuple(merged)

    def _look(self) -> _View:
        each = together = 0
        bit_of: dict[WorkerId, int] = {}
        worker_of: dict[int, WorkerId] = {}
        tier_of: dict[int, Tier] = {}
        stores: dict[WorkerId, dict[int, Tier]] = {}
        beside: dict[WorkerId, dict[int, Tier]] = {}
        spread = False
        for holder, feed in self._feeds.items():
            apart = is_store(holder)
            spread |= not apart and store_of(holder) != STORE
            for tier, slot in feed.shelves.slots.items():
                if tier is Tier.DEVICE:
                    each |= slot.bit
                    bit_of[holder], worker_of[slot.bit] = slot.bit, holder
                elif holder == STORE:
                    together |= slot.bit
                    tier_of[slot.bit] = tier
                else:
                    (stores if apart else beside).setdefault(holder, {})[slot.bit] = tier
        self._view = _View(each, together, bit_of, worker_of, tier_of, stores, beside, spread)
        return self._view
