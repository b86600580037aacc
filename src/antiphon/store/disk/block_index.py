"""Which block lies where on disk: what recovery rebuilds, and reads look up. No I/O, no lock."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from antiphon.store.record import RecordedBlock
from antiphon.types import BlockKey


class Place(NamedTuple):
    """Where a record lies. Ordered: a greater place was written later."""

    segment: int
    at: int
    header_bytes: int
    record_bytes: int


@dataclass(slots=True)
class Entry:
    """A block that can be read. `uses`: reads since it was written there."""

    block: RecordedBlock
    place: Place
    uses: int = 0


@dataclass(slots=True)
class SegmentUse:
    """What is known of one segment. `strangers`: it holds records of other origins, too, or what
    nobody here can read. `keys`: its blocks that count, in the order of their places."""

    size_bytes: int = 0
    strangers: bool = False
    keys: dict[BlockKey, None] = field(default_factory=dict)


class BlockIndex:
    """Blocks by key and by segment. Of two records of one block the later one counts."""

    def __init__(self) -> None:
        self._entries: dict[BlockKey, Entry] = {}
        self._segments: dict[int, SegmentUse] = {}
        self.size_bytes = 0
        """Of all segments."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterable[BlockKey]:
        return iter(self._entries)

    def get(self, key: BlockKey) -> Entry | None:
        """Where the block lies; None: not here."""
        return self._entries.get(key)

    def put(self, block: RecordedBlock, place: Place) -> bool:
        """The block lies there, too. False: it lies somewhere later, and nothing changed."""
        before = self._entries.get(block.key)
        if before is not None:
            if before.place >= place:
                return False
            self.drop(block.key)
        self._entries[block.key] = Entry(block, place)
        self._segments[place.segment].keys[block.key] = None
        return True

    def drop(self, key: BlockKey) -> Entry | None:
        """Forget a block; returns what was known of it."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._segments[entry.place.segment].keys.pop(key)
        return entry

    def of_tenant(self, tenant: bytes | None) -> Sequence[BlockKey]:
        """All keys of a tenant (None: of all) in the order in which they were written."""
        found = [e for e in self._entries.values() if tenant is None or e.block.tenant == tenant]
        return [entry.block.key for entry in sorted(found, key=lambda entry: entry.place)]

    def segment(self, number: int) -> SegmentUse | None:
        """What is known of a segment; None: it is not here."""
        return self._segments.get(number)

    def segments(self) -> Sequence[int]:
        """Numbers of all segments, oldest first."""
        return sorted(self._segments)

    def oldest(self) -> int | None:
        """The segment that goes next; None: there is none."""
        return min(self._segments, default=None)

    def found(self, number: int, size_bytes: int) -> None:
        """A segment is there whose content is not known yet."""
        self.resize(number, size_bytes)
        self._segments[number].strangers = True

    def resize(self, number: int, size_bytes: int) -> None:
        """The segment is there and has so many bytes."""
        segment = self._segments.setdefault(number, SegmentUse())
        self.size_bytes += size_bytes - segment.size_bytes
        segment.size_bytes = size_bytes

    def drop_segment(self, number: int) -> tuple[BlockKey, ...]:
        """The segment is gone; returns the blocks that went with it."""
        segment = self._segments.pop(number, None)
        if segment is None:
            return ()
        self.size_bytes -= segment.size_bytes
        for key in segment.keys:
            del self._entries[key]
        return tuple(segment.keys)
