"""All KV pages of one worker: who holds them, and what may be read again.

    free ──reserve──▶ held ──release──▶ free          (content without a name)
                       │ ▲
                commit │ │ reserve(keep=match)        (a complete block with a key)
                       ▼ │
             held, named ──release──▶ cached ──evict──▶ free

Every page is free, held (somebody refers to it) or cached (nobody does, but its block has a key):
`free + held + cached == total`, always. All operations cost O(1) a page.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from antiphon.errors import BugError
from antiphon.types import BlockKey, BlockRemoved, BlockStored, KvEvent, PageId, TokenId

KvListener: TypeAlias = Callable[[KvEvent], None]


def ignore(_event: KvEvent) -> None:
    """The listener for those who do not care."""


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix: its blocks' keys and all their pages, in order.

    Good until the pool changes; `reserve` raises `BugError` on one that no longer holds.
    """

    keys: tuple[BlockKey, ...] = ()
    pages: tuple[PageId, ...] = ()
    idle_pages: int = 0
    """How many of the pages nobody refers to now: keeping them makes them held."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """These pages are the caller's, and so is a reference to each page of the match it kept."""

    pages: tuple[PageId, ...]


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Nothing was changed: `needed` new pages were asked for and `available` could be had."""

    needed: int
    available: int


@dataclass(slots=True, eq=False)
class NamedBlock:
    """A complete block that can be found by its key."""

    key: BlockKey
    pages: tuple[PageId, ...]
    parent: BlockKey | None
    tenant: bytes
    live: int = field(default=0)
    """Pages of it that somebody refers to; 0: the block may be evicted."""
    strand: int = field(default=0)
    """Which part of the layers its pages are of: see `WindowedPagePool`."""


@lru_cache(maxsize=8)
def _falling(pages: int) -> tuple[PageId, ...]:
    """All page ids, the first one last. One object each for all pools of a process: of a thousand
    simulated workers each has some ten thousand pages."""
    return tuple(range(pages - 1, -1, -1))


class PagePool:
    """Reference-counted pages with a prefix cache of complete blocks, evicted least recent first.

    Only complete blocks are ever shared. A block whose key is already cached stays private.
    """

    def __init__(
        self,
        pages: int,
        pages_per_block: int,
        *,
        prefix_cache: bool = True,
        listen: KvListener = ignore,
    ) -> None:
        if pages < 1 or pages_per_block < 1:
            raise BugError(f"a pool of {pages} pages, {pages_per_block} a block, makes no sense")
        self.total_pages = pages
        self.pages_per_block = pages_per_block
        self.prefix_cache = prefix_cache
        self._listen = listen
        self._references = [0] * pages
        self._block_of: list[NamedBlock | None] = [None] * pages
        self._free = list(_falling(pages))
        self._held = 0
        self._named: dict[BlockKey, NamedBlock] = {}
        self._idle: OrderedDict[NamedBlock, None] = OrderedDict()
        """Named blocks that nobody refers to, next to be evicted first."""
        self._cached = 0

    @property
    def free_pages(self) -> int:
        """Pages without content."""
        return len(self._free)

    @property
    def held_pages(self) -> int:
        """Pages that somebody refers to."""
        return self._held

    @property
    def cached_pages(self) -> int:
        """Pages that nobody refers to, whose content can be found by key."""
        return self._cached

    @property
    def available_pages(self) -> int:
        """Pages that `reserve` could give now."""
        return self.free_pages + self.cached_pages

    def named(self) -> Sequence[BlockKey]:
        """The keys of all blocks that `match` can find now, first named first. Does not mutate."""
        return tuple(self._named)

    def block(self, key: BlockKey) -> BlockStored | None:
        """What the listener was told of the block, but for its tokens, if `match` finds it now.

        Does not mutate.
        """
        block = self._named.get(key)
        if block is None:
            return None
        return BlockStored(key, block.parent, pages=block.pages, tenant=block.tenant)

    def match(self, keys: Iterable[BlockKey]) -> Match:
        """Longest run of cached blocks that `keys` (a chain from position 0) begins with.

        Does not mutate: not even the order of eviction.
        """
        found: list[NamedBlock] = []
        for key in keys:
            block = self._named.get(key)
            if block is None:
                break
            found.append(block)
        return Match(
            keys=tuple(block.key for block in found),
            pages=tuple(page for block in found for page in block.pages),
            idle_pages=sum(self.pages_per_block for block in found if not block.live),
        )

    def reserve(self, pages: int, keep: Match | None = None) -> Reservation | OutOfMemory:
        """Take `pages` new pages and a reference to each page of `keep`: all or nothing.

        Evicts idle blocks as needed, least recently used first and never one that is kept.
        """
        kept = self._still_there(keep) if keep is not None else ()
        idle = sum(len(block.pages) for block in kept if not block.live)
        available = self.available_pages - idle
        if pages > available:
            return OutOfMemory(needed=pages, available=available)
        for block in kept:
            self._refer(block)
        while len(self._free) < pages:
            self._evict()
        taken = tuple(self._free[: -pages - 1 : -1])
        del self._free[len(self._free) - pages :]
        for page in taken:
            self._references[page] = 1
        self._held += pages
        return Reservation(taken)

    def share(self, pages: Iterable[PageId]) -> None:
        """Add a reference to pages that are already held (a fork reads what its source wrote)."""
        for page in pages:
            if not self._references[page]:
                raise BugError(f"page {page} is shared but nobody holds it")
            self._references[page] += 1

    def commit(
        self,
        key: BlockKey,
        parent: BlockKey | None,
        pages: Sequence[PageId],
        tokens: Sequence[TokenId] = (),
        tenant: bytes = b"",
    ) -> bool:
        """Name the held pages of a complete block, so that `match` finds it from now on.

        False (and nothing changed) if the key is cached already or the prefix cache is off: the
        pages then stay private. `parent`, `tokens` and `tenant` are for the listener.
        """
        if not self.prefix_cache or key in self._named:
            return False
        if len(pages) != self.pages_per_block:
            raise BugError(f"a block has {self.pages_per_block} pages, not {len(pages)}")
        references, block_of = self._references, self._block_of
        for page in pages:
            if not references[page] or block_of[page] is not None:
                raise BugError(f"page {page} can't be named: nobody holds it, or it has a block")
        block = NamedBlock(key, tuple(pages), parent, tenant, live=len(pages))
        for page in pages:
            block_of[page] = block
        self._named[key] = block
        self._listen(
            BlockStored(key, parent, pages=block.pages, tokens=tuple(tokens), tenant=tenant)
        )
        return True

    def release(self, pages: Sequence[PageId]) -> None:
        """Drop one reference to each page, last page first: tails are evicted before heads."""
        references, block_of = self._references, self._block_of
        for page in reversed(pages):
            references[page] -= 1
            if references[page] > 0:
                continue
            if references[page] < 0:
                raise BugError(f"page {page} is released more often than it was taken")
            self._held -= 1
            block = block_of[page]
            if block is None:
                self._free.append(page)
                continue
            block.live -= 1
            if not block.live:
                self._idle[block] = None
                self._cached += len(block.pages)

    def forget(self, pages: Iterable[PageId]) -> None:
        """Take the names off the blocks that these pages belong to: their content is in doubt.

        Whoever holds them keeps them; nobody finds them again. The listener is told so, for copies
        of them are as doubtful.
        """
        for page in pages:
            block = self._block_of[page]
            if block is not None:
                self._forget(block)

    def shared_pages(self, table: Sequence[PageId], besides: Set[PageId] = frozenset()) -> int:
        """How many pages at the beginning of a page table others read too, or are in `besides`.

        Blocks are shared as a whole and from the first on (but for a block whose twin was named
        first: the count may then be off), so O(log n) blocks are looked at.
        """
        references, size = self._references, self.pages_per_block
        low, high = 0, -(-len(table) // size)
        while low < high:
            middle = (low + high) // 2
            page = table[middle * size]
            if references[page] > 1 or page in besides:
                low = middle + 1
            else:
                high = middle
        return min(low * size, len(table))

    def _still_there(self, match: Match) -> Sequence[NamedBlock]:
        blocks = [self._named[key] for key in match.keys if key in self._named]
        if match.pages != tuple(page for block in blocks for page in block.pages):
            raise BugError("a match was kept after the pool had changed")
        return blocks

    def _refer(self, block: NamedBlock) -> None:
        if not block.live:
            self._take_idle(block)
        for page in block.pages:
            if not self._references[page]:
                block.live += 1
                self._held += 1
            self._references[page] += 1

    def _evict(self) -> None:
        block, _ = self._idle.popitem(last=False)
        self._cached -= len(block.pages)
        self._unname(block)
        self._free.extend(reversed(block.pages))

    def _forget(self, block: NamedBlock) -> None:
        self._unname(block, doubtful=True)
        if not block.live:
            self._take_idle(block)
            self._free.extend(reversed(block.pages))

    def _take_idle(self, block: NamedBlock) -> None:
        del self._idle[block]
        self._cached -= len(block.pages)

    def _unname(self, block: NamedBlock, *, doubtful: bool = False) -> None:
        del self._named[block.key]
        for page in block.pages:
            self._block_of[page] = None
        self._listen(BlockRemoved(block.key, doubtful))
