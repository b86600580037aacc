"""A KV store without numbers: it keeps what the pages of a block held when they were put.

    scheduler ──BlockStored──▶ StoreSide ──sealed, later copied──▶ ShadowStore
    scheduler ◀──good: per block── StoreSide ◀──copied into the fetch's pages──┘

As with shared memory, a copy is of what lies there at that time: if a page was used anew before it
was copied, its generation says so, and the put is dropped.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from antiphon.core.faults import Boundary, Corrupt, Damage
from antiphon.types import (
    BlockKey,
    BlockRemoved,
    BlockStored,
    Fetch,
    KvEvent,
    OfferedPage,
    Seconds,
    StepPlan,
)

from .shadow_kv import GARBAGE, PageContent, PageCopy, ShadowKv, checksum

Lost: TypeAlias = Callable[[Fetch], Collection[int]]
"""Which blocks of a fetch, by number, can't be had though they were put."""
Late: TypeAlias = Callable[[Fetch], Seconds]
"""How much later than usual the last layers of a fetch come."""
Crossed: TypeAlias = Callable[[Boundary], Damage | None]
"""A block is copied into the store or out of it: what befalls the copy."""


def nothing_is_lost(_fetch: Fetch) -> Collection[int]:
    """Every block that was put can be had."""
    return ()


def nothing_is_late(_fetch: Fetch) -> Seconds:
    """Every fetch takes its time."""
    return 0.0


def nothing_befalls(_boundary: Boundary) -> Damage | None:
    """Every copy is good."""
    return None


@dataclass(frozen=True, slots=True)
class _Block:
    content: tuple[PageContent, ...]
    sums: tuple[int, ...]
    """What was meant to be in each page."""


class ShadowStore:
    """Blocks by key, shared by all workers of a run."""

    def __init__(self) -> None:
        self.fills = self.losses = self.damaged = 0
        """Times that the disk got full and that all was lost; blocks that came damaged."""
        self.bad = 0
        """Copies into the store and out of it that were found to be wrong."""
        self._full = 0
        self._blocks: dict[BlockKey, _Block] = {}

    def __len__(self) -> int:
        """Blocks that it has."""
        return len(self._blocks)

    def put(
        self, key: BlockKey, content: tuple[PageContent, ...], damage: Corrupt | None = None
    ) -> bool:
        """Keep a block, unless it is known; with `damage` its last page lies there changed.

        False: there is no room.
        """
        self.damaged += damage is not None
        if self._full:
            return False
        if key not in self._blocks:
            sums = tuple(map(checksum, content))
            if damage is not None:
                content = (*content[:-1], PageCopy(0, content[-1]).damaged(damage).content)
            self._blocks[key] = _Block(content, sums)
        return True

    def fill(self) -> None:
        """Its disk is full, until each `fill` has had its `make_room`."""
        self.fills += 1
        self._full += 1

    def make_room(self) -> None:
        """End one `fill`."""
        self._full -= 1

    def lose_all(self) -> None:
        """Nobody can have any block any more."""
        self.losses += 1
        self._blocks.clear()

    def forget(self, key: BlockKey) -> None:
        """Nobody can have it any more; fine if it is not here."""
        self._blocks.pop(key, None)

    def get(self, key: BlockKey) -> tuple[PageContent, ...] | None:
        """What the block's pages hold; None: it is not here."""
        block = self._blocks.get(key)
        return None if block is None else block.content

    def sums(self, key: BlockKey) -> tuple[int, ...]:
        """The checksum of each page of a block that is here."""
        return self._blocks[key].sums


@dataclass(frozen=True, slots=True)
class SealedBlock:
    """A block that is to be put, and what its pages must still be when they are copied."""

    key: BlockKey
    pages: tuple[OfferedPage, ...]


class StoreSide:
    """What a worker does with a store; its driver says when. `listen` is for the scheduler.

    `put_s` and `fetch_s`: how long the driver waits before `put` and `copy`. In that time a fetch
    comes in `groups` groups of layers; what its pages hold is known with the last.
    """

    def __init__(  # noqa: PLR0913  how a store may behave
        self,
        store: ShadowStore,
        memory: ShadowKv,
        *,
        lost: Lost = nothing_is_lost,
        late: Late = nothing_is_late,
        put_s: Seconds = 0.01,
        fetch_s: Seconds = 0.03,
        groups: int = 1,
        crossed: Crossed = nothing_befalls,
    ) -> None:
        self._crossed = crossed
        self.put_s = put_s
        self.fetch_s = fetch_s
        self.groups = groups
        self.late = late
        self._store = store
        self._memory = memory
        self._lost = lost
        self._fresh: dict[BlockKey, BlockStored] = {}
        self._sealed: dict[BlockKey, SealedBlock] = {}
        """To be put."""

    def listen(self, event: KvEvent) -> None:
        """A block got its name here, or lost it. If what computed it has failed, so does the store
        forget it, and what is still to be put comes to nothing."""
        match event:
            case BlockStored(key=key):
                self._fresh[key] = event
            case BlockRemoved(key=key, doubtful=doubtful):
                self._fresh.pop(key, None)
                if doubtful:
                    self._sealed.pop(key, None)
                    self._store.forget(key)

    def seal_fresh(self) -> list[SealedBlock]:
        """Blocks that were named since this was last asked, to be `put` later.

        Comes right after the scheduler named them: before it can reserve their pages anew.
        """
        fresh, self._fresh = self._fresh, {}
        sealed = {key: SealedBlock(key, self._memory.seal(one.pages)) for key, one in fresh.items()}
        self._sealed.update(sealed)
        return list(sealed.values())

    def put(self, block: SealedBlock) -> bool:
        """Whether the block could be copied: its pages are what they were, nobody doubts it, and
        there is room."""
        if self._sealed.get(block.key) is not block:
            return False
        del self._sealed[block.key]
        copies = [self._memory.copy(page.page) for page in block.pages]
        damage = self._crossed(Boundary.PUT)
        if damage is not None and not isinstance(damage, Corrupt):
            copies[-1] = copies[-1].damaged(damage)
            damage = None
        pages = [copy.verified(page) for copy, page in zip(copies, block.pages, strict=True)]
        content = tuple(page for page in pages if page is not None)
        if len(content) < len(pages):
            self._store.bad += 1
            return False
        return self._store.put(block.key, content, damage)

    def copy(self, fetch: Fetch) -> tuple[bool, ...]:
        """Fill the pages of a fetch; for each block, whether it could be had.

        Others are written too: a copy that breaks off leaves anything. If windows pass pages of it,
        so are those that are not read.
        """
        lost = self._lost(fetch)
        keys = [None if number in lost else key for number, key in enumerate(fetch.keys)]
        if not fetch.back:
            return tuple(map(self._copy_block, keys, fetch.targets))
        absent = (at for at, key in enumerate(keys) if key is None or self._store.get(key) is None)
        found = next(absent, len(keys))
        first = fetch.first_blocks(found)
        good = [
            self._copy_block(
                key if number < found else None,
                targets,
                {place for place, begin in enumerate(first) if number < begin},
            )
            for number, (key, targets) in enumerate(zip(keys, fetch.targets, strict=True))
        ]
        here = found if all(good[:found]) else 0
        return (True,) * here + (False,) * (len(keys) - here)

    def spoil(self, plan: StepPlan) -> None:
        """The engine broke this plan off in the middle: what it was to write holds anything."""
        for chunk in plan.chunks:
            first = chunk.start // self._memory.page_tokens * self._memory.entry_pages
            for page in chunk.new_pages[first:]:
                self._memory.pull(page, (GARBAGE,) * self._memory.page_tokens)

    def is_good(self, copy: PageCopy, promised: OfferedPage) -> bool:
        """Is what was copied out of the store what was put?"""
        return copy.verified(promised) is not None

    def _copy_block(
        self,
        key: BlockKey | None,
        targets: tuple[int, ...],
        unread: Collection[int] = (),
    ) -> bool:
        content = None if key is None else self._store.get(key)
        if key is None or content is None:
            for target in targets:
                self._memory.pull(target, (GARBAGE,) * self._memory.page_tokens)
            return False
        sums, copies = self._store.sums(key), [PageCopy(0, page) for page in content]
        damage = self._crossed(Boundary.FETCH)
        if damage is not None:
            copies[-1] = copies[-1].damaged(damage)
        good = True
        for place, (copy, total, target) in enumerate(zip(copies, sums, targets, strict=True)):
            if place in unread:
                self._memory.pull(target, (GARBAGE,) * self._memory.page_tokens)
                continue
            self._memory.pull(target, copy.content)
            good &= self.is_good(copy, OfferedPage(target, 0, total))
        self._store.bad += not good
        return good
