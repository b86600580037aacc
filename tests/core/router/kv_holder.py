"""A holder of KV that tells what it has, as the live ones do, and a link that breaks promises."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from antiphon.core.router import PrefixIndex
from antiphon.types import (
    BlockKey,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    KvReplay,
    Tier,
    WorkerId,
)

PART = 2
"""Blocks in a part of a dump, and changes in a message of a replay."""


@dataclass
class Holder:
    """What it holds is the truth. The newest `kept` changes can be said again."""

    name: WorkerId
    life: int = 1
    kept: int = 4
    blocks: set[tuple[BlockKey, Tier]] = field(default_factory=set)
    changes: list[KvChange] = field(default_factory=list)
    said: int = 0

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(f"{self.name}-{self.life}")

    def change(self, key: BlockKey, tier: Tier, stored: bool) -> None:
        if ((key, tier) in self.blocks) != stored:
            self.blocks ^= {(key, tier)}
            self.changes.append(KvChange(key, tier, stored))

    def news(self) -> list[KvEvents]:
        first, self.said = self.said, len(self.changes)
        if first == self.said:
            return []
        return [KvEvents(first=first, changes=tuple(self.changes[first:]))]

    def so_far(self) -> KvEvents:
        """No change: how many there were."""
        return KvEvents(first=len(self.changes), changes=())

    def dump(self) -> list[KvDump]:
        blocks, self.said = sorted(self.blocks), len(self.changes)
        starts = range(0, len(blocks), PART) or range(1)
        return [
            KvDump(
                next=self.said,
                begins=start == 0,
                ends=start == starts[-1],
                blocks=tuple(blocks[start : start + PART]),
            )
            for start in starts
        ]

    def again(self, wish: KvReplay) -> Sequence[KvEvents | KvDump]:
        if wish.first < len(self.changes) - self.kept:
            return self.dump()
        self.said = len(self.changes)
        return [
            KvEvents(first=first, changes=tuple(self.changes[first : first + PART]))
            for first in range(wish.first, len(self.changes), PART)
        ]

    def restart(self) -> None:
        self.life += 1
        self.blocks, self.changes, self.said = set(), [], 0


Sent = tuple[WorkerId, Incarnation, list[KvEvents | KvDump]]


class Link:
    """Messages under way to an index. Parts of a dump stay together, and may be cut off."""

    def __init__(self, holders: Sequence[Holder]) -> None:
        self.holders = {holder.name: holder for holder in holders}
        self.under_way: list[Sent] = []

    def send(self, holder: Holder, messages: Sequence[KvEvents | KvDump]) -> None:
        dump = [message for message in messages if isinstance(message, KvDump)]
        singles = [[message] for message in messages if isinstance(message, KvEvents)]
        for together in [dump, *singles] if dump else singles:
            self.under_way.append((holder.name, holder.incarnation, list(together)))

    def deliver(self, index: PrefixIndex, place: int, now: float) -> None:
        """The next message of one place in the queue. A wish is answered at once."""
        place = self._begun(place)
        name, incarnation, messages = self.under_way[place]
        message = messages.pop(0)
        if not messages:
            del self.under_way[place]
        self.hear(index, name, incarnation, message, now)

    def _begun(self, place: int) -> int:
        """A dump that has begun goes on before another one: streams are ordered."""
        name, incarnation, messages = self.under_way[place]
        if isinstance(messages[0], KvDump):
            for other, (one, life, parts) in enumerate(self.under_way):
                half = isinstance(parts[0], KvDump) and not parts[0].begins
                if half and (one, life) == (name, incarnation):
                    return other
        return place

    def hear(
        self,
        index: PrefixIndex,
        name: WorkerId,
        incarnation: Incarnation,
        message: KvEvents | KvDump,
        now: float,
    ) -> None:
        holder = self.holders[name]
        wish = index.apply(name, incarnation, message, now)
        if wish is not None and incarnation == holder.incarnation:
            self.send(holder, holder.again(wish))

    def quiet(self, index: PrefixIndex, now: float) -> float:
        """Nothing is lost any more, and holders say from time to time how far they are."""
        for _ in range(8):
            while self.under_way:
                self.deliver(index, 0, now)
            now += 2.0
            for holder in self.holders.values():
                self.send(holder, [*holder.news(), holder.so_far()])
        while self.under_way:
            self.deliver(index, 0, now)
        return now
