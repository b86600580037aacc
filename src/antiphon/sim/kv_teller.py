"""What a holder of KV in virtual time has, as it tells its gateway."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from antiphon.core.kv import KvListener
from antiphon.types import (
    BlockKey,
    BlockStored,
    KvChange,
    KvDump,
    KvEvent,
    KvEvents,
    KvReplay,
    Tier,
)

_DEVICE = Tier.DEVICE

Held: TypeAlias = Callable[[], Iterable[tuple[BlockKey, Tier]]]
"""All blocks that there are now."""


class ChangeTeller:
    """Numbers the changes of one life of a holder."""

    def __init__(self, held: Held, kept: int) -> None:
        """`kept`: so many changes can be said again; more are a dump of what is `held`."""
        self._held = held
        self._most = kept
        self._kept: list[KvChange] = []
        """The last `kept` at least."""
        self._next = self._said = 0

    def note(self, change: KvChange) -> None:
        """A block came or went. Mutates."""
        self._kept.append(change)
        if len(self._kept) > 2 * self._most:
            del self._kept[: -self._most]
        self._next += 1

    @property
    def has_news(self) -> bool:
        """Something has changed since it was last told."""
        return self._said < self._next

    def news(self) -> KvEvents | KvDump:
        """What has changed since the last time; if nothing has, how many changes there were."""
        return self.again(KvReplay(self._said))

    def again(self, wish: KvReplay) -> KvEvents | KvDump:
        """All changes from that number on, or all that is there if they are forgotten."""
        self._said, first = self._next, wish.first
        if not self._next - min(len(self._kept), self._most) <= first <= self._next:
            return self.dump()
        changes = self._kept[len(self._kept) - (self._next - first) :]
        return KvEvents(first=first, changes=tuple(changes))

    def all_held(self) -> Iterable[tuple[BlockKey, Tier]]:
        """All blocks that there are now."""
        return self._held()

    def dump(self) -> KvDump:
        """All that is there."""
        self._said = self._next
        return KvDump(next=self._next, begins=True, ends=True, blocks=tuple(self.all_held()))


class KvTeller(ChangeTeller):
    """Of one life of a worker. `listen` is for the scheduler.

    `beside`: what lies beside the worker, and is told with what its own memory has. Who sets it
    `note`s its changes.
    """

    def __init__(self, also: KvListener | None, kept: int) -> None:
        """`also` is told of each event; None: nobody is."""
        super().__init__(tuple, kept)
        self.held: dict[BlockKey, None] = {}
        self.beside: Held = tuple
        self._also = also

    def listen(self, event: KvEvent) -> None:
        """A block came or went. Passes it on."""
        stored = isinstance(event, BlockStored)
        if stored:
            self.held[event.key] = None
        else:
            self.held.pop(event.key, None)
        self.note(KvChange(event.key, _DEVICE, stored))
        if self._also is not None:
            self._also(event)

    def all_held(self) -> Iterable[tuple[BlockKey, Tier]]:
        """See `ChangeTeller`."""
        yield from ((key, _DEVICE) for key in self.held)
        yield from self.beside()
