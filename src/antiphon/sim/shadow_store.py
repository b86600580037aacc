"""A KV store without numbers: it keeps what the pages of a block held when they were put.

    scheduler ──BlockStored──▶ StoreSide ──sealed, later copied──▶ ShadowStore
    scheduler ◀──good: per block── StoreSide ◀──copied into the fetch's pages──┘

As with shared memory, a copy is of what lies there at that time: if a page was used anew before it
was copied, its generation says so, and the put is dropped.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

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

from .shadow_kv import PageContent, ShadowKv

Lost: TypeAlias = Callable[[Fetch], Collection[int]]
"""Which blocks of a fetch, by number, can't be had though they were put."""
Late: TypeAlias = Callable[[Fetch], Seconds]
"""How much later than usual the last layers of a fetch come."""
GARBAGE = -1


def nothing_is_lost(_fetch: Fetch) -> Collection[int]:
    """Every block that was put can be had."""
    return ()


def nothing_is_late(_fetch: Fetch) -> Seconds:
    """Every fetch takes its time."""
    return 0.0


class ShadowStore:
    """Blocks by key, shared by all workers of a run."""

    def __init__(self) -> None:
        self._blocks: dict[BlockKey, tuple[PageContent, ...]] = {}

    def __len__(self) -> int:
        """Blocks that it has."""
        return len(self._blocks)

    def put(self, key: BlockKey, content: tuple[PageContent, ...]) -> None:
        """Keep a block, unless it is known."""
        self._blocks.setdefault(key, content)

    def forget(self, key: BlockKey) -> None:
        """Nobody can have it any more; fine if it is not here."""
        self._blocks.pop(key, None)

    def get(self, key: BlockKey) -> tuple[PageContent, ...] | None:
        """What the block's pages held; None: it is not here."""
        return self._blocks.get(key)


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

    def __init__(
        self,
        store: ShadowStore,
        memory: ShadowKv,
        *,
        lost: Lost = nothing_is_lost,
        late: Late = nothing_is_late,
        put_s: Seconds = 0.01,
        fetch_s: Seconds = 0.03,
        groups: int = 1,
    ) -> None:
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
        """Whether the block could be copied: its pages are what they were, and nobody doubts it."""
        if self._sealed.get(block.key) is not block:
            return False
        del self._sealed[block.key]
        pages = [self._memory.read(page) for page in block.pages]
        content = tuple(page for page in pages if page is not None)
        if len(content) < len(pages):
            return False
        self._store.put(block.key, content)
        return True

    def copy(self, fetch: Fetch) -> tuple[bool, ...]:
        """Fill the pages of a fetch; for each block, whether it could be had.

        Others are written too: a copy that breaks off leaves anything.
        """
        lost = self._lost(fetch)
        return tuple(
            self._copy_block(None if number in lost else self._store.get(key), targets)
            for number, (key, targets) in enumerate(zip(fetch.keys, fetch.targets, strict=True))
        )

    def spoil(self, plan: StepPlan) -> None:
        """The engine broke this plan off in the middle: what it was to write holds anything."""
        for chunk in plan.chunks:
            for page in chunk.new_pages[chunk.start // self._memory.page_tokens :]:
                self._memory.pull(page, (GARBAGE,) * self._memory.page_tokens)

    def _copy_block(
        self, content: tuple[PageContent, ...] | None, targets: tuple[int, ...]
    ) -> bool:
        for number, target in enumerate(targets):
            held = self._memory.content(target)
            page = (GARBAGE,) * len(held) if content is None else content[number]
            self._memory.pull(target, page)
        return content is not None
