"""What a virtual worker has in its prefix cache, as it tells its gateway."""

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


class KvTeller:
    """Numbers the changes of one life of a process. `listen` is for the scheduler."""

    def __init__(self, also: KvListener, kept: int) -> None:
        """`kept`: so many changes can be said again; more are a dump."""
        self.held: dict[BlockKey, None] = {}
        self._also = also
        self._most = kept
        self._kept: list[KvChange] = []
        """The last `kept` at least."""
        self._next = self._said = 0

    def listen(self, event: KvEvent) -> None:
        """A block came or went. Passes it on."""
        key, stored = event.key, isinstance(event, BlockStored)
        if stored:
            self.held[key] = None
        else:
            self.held.pop(key, None)
        kept = self._kept
        kept.append(KvChange(key, _DEVICE, stored))
        if len(kept) > 2 * self._most:
            del kept[: -self._most]
        self._next += 1
        self._also(event)

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

    def dump(self) -> KvDump:
        """All that is there."""
        self._said = self._next
        blocks = tuple((key, Tier.DEVICE) for key in self.held)
        return KvDump(next=self._next, begins=True, ends=True, blocks=blocks)
