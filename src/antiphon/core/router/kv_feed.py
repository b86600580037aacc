"""One life of a holder of KV, as it is heard: numbered changes, dumps in parts, what is missing.

    KvDump (begins) ─► … ─► KvDump (ends)      all that is held before change `next`: then it counts
    KvEvents(first) ─► first == next: applied; older: known already; newer: kept, and asked for

Streams are ordered and lose nothing while they live; still, nothing here depends on that but that
the parts of one dump come whole and in order: changes may be lost, repeated and overtaken.
"""

from dataclasses import dataclass, field

from antiphon.types import (
    BlockKey,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    KvReplay,
    Seconds,
    Tier,
)

from .block_table import BlockTable, Slot

ASK_AGAIN_S: Seconds = 1.0
"""Without an answer, or the next part of a dump, for so long: ask again. Never more often, so that
nothing asks for the same gap in a loop (dynamo 7072)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedLimits:
    """`blocks`: most that are known of one holder. Changes that came too early are kept up to
    `early_changes` and `early_messages`; beyond that they are forgotten, and said again."""

    blocks: int = 2**20
    early_changes: int = 2**16
    early_messages: int = 1024


@dataclass(slots=True, eq=False)
class Shelves:
    """A slot for each tier. `refused` counts blocks beyond the limit that were left out."""

    table: BlockTable
    limit: int
    slots: dict[Tier, Slot] = field(default_factory=dict)
    blocks: int = 0
    refused: int = 0

    def put(self, key: BlockKey, tier: Tier) -> None:
        """The block is there now. Mutates."""
        slot = self.slots.get(tier)
        if slot is None:
            slot = self.slots[tier] = self.table.open()
        if key in slot.keys:
            return
        if self.blocks >= self.limit:
            self.refused += 1
            return
        self.blocks += 1
        self.table.add(slot, key)

    def take(self, key: BlockKey, tier: Tier) -> None:
        """The block is not there any more. Mutates."""
        slot = self.slots.get(tier)
        if slot is not None and key in slot.keys:
            self.blocks -= 1
            self.table.remove(slot, key)

    def close(self) -> None:
        """All of it is over. Mutates."""
        for slot in self.slots.values():
            self.table.close(slot)
        self.slots = {}


@dataclass(slots=True, eq=False)
class _Dump:
    next: int
    heard_at: Seconds
    shelves: Shelves


class KvFeed:
    """What one life of a holder has, as far as its messages tell. Mutable.

    `shelves` is what counts; a dump's parts are laid out beside it until the last is there.
    """

    def __init__(self, incarnation: Incarnation, table: BlockTable, limits: FeedLimits) -> None:
        self.incarnation = incarnation
        self.next = 0
        """The number of the first change that is not known."""
        self.dumps = 0
        """How many have come whole."""
        self._refused = 0
        """Blocks that were left out before the last dump."""
        self._table, self._limits = table, limits
        self.shelves = Shelves(table, limits.blocks)
        self._dump: _Dump | None = None
        self._early: dict[int, tuple[KvChange, ...]] = {}
        self._early_changes = 0
        self._asked_for = -1
        self._asked_at: Seconds = 0.0

    @property
    def behind(self) -> bool:
        """Something is known to be missing, or on its way."""
        return self._dump is not None or bool(self._early)

    @property
    def refused_total(self) -> int:
        """Blocks that were left out, over all dumps."""
        return self._refused + self.shelves.refused

    def events(self, message: KvEvents, now: Seconds) -> KvReplay | None:
        """Take in changes. Returns what must be said again, if something is missing. Mutates."""
        if message.first == self.next and not (message.changes or self._dump or self._early):
            return None  # nothing is new, as with most heartbeats
        if self._dump is not None and now - self._dump.heard_at >= ASK_AGAIN_S:
            self._drop_dump()  # the rest of it is lost
            self._catch_up()
        if self._dump is None and message.first <= self.next:
            self._apply(message.first, message.changes)
            self._catch_up()
        elif message.first + len(message.changes) > self.next:
            self._keep(message)
        return self._missing(now)

    def dump(self, message: KvDump, now: Seconds) -> KvReplay | None:
        """Take in a part of a dump; with the last one it replaces all. Mutates.

        One that is older than what is known changes nothing.
        """
        if message.begins:
            self._drop_dump()
            if message.next >= self.next:
                shelves = Shelves(self._table, self._limits.blocks)
                self._dump = _Dump(message.next, now, shelves)
        dump = self._dump
        if dump is None or dump.next != message.next:
            return self._missing(now)
        dump.heard_at = now
        for key, tier in message.blocks:
            dump.shelves.put(key, tier)
        if message.ends:
            self._dump = None
            self.close()
            self._refused += self.shelves.refused
            self.shelves, self.next = dump.shelves, dump.next
            self.dumps += 1
            self._catch_up()
        return self._missing(now)

    def close(self) -> None:
        """The life is over, or told anew. Mutates."""
        self._drop_dump()
        self.shelves.close()

    def _drop_dump(self) -> None:
        if self._dump is not None:
            self._dump.shelves.close()
            self._dump = None

    def _apply(self, first: int, changes: tuple[KvChange, ...]) -> None:
        for key, tier, stored in changes[self.next - first :]:
            if stored:
                self.shelves.put(key, tier)
            else:
                self.shelves.take(key, tier)
        self.next = max(self.next, first + len(changes))

    def _keep(self, message: KvEvents) -> None:
        known = self._early.get(message.first)
        if known is not None and len(known) >= len(message.changes):
            return
        full = (
            len(self._early) >= self._limits.early_messages
            or self._early_changes + len(message.changes) > self._limits.early_changes
        )
        if full:
            self._early.clear()
            self._early_changes = 0
            message = KvEvents(first=message.first, changes=())
        else:
            self._early_changes += len(message.changes) - len(known or ())
        self._early[message.first] = message.changes

    def _catch_up(self) -> None:
        """What came too early may fit now."""
        for first in sorted(self._early):
            if first > self.next:
                return
            changes = self._early.pop(first)
            self._early_changes -= len(changes)
            self._apply(first, changes)

    def _missing(self, now: Seconds) -> KvReplay | None:
        """Ask for what is missing, once, and again when no answer came. A dump is an answer."""
        if not self._early or self._dump is not None:
            return None
        if self._asked_for == self.next and now - self._asked_at < ASK_AGAIN_S:
            return None
        self._asked_for, self._asked_at = self.next, now
        return KvReplay(self.next)
