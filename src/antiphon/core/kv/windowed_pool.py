"""The page pool of a model whose layers see through sliding windows, some of them or all.

A block then has pages that last and pages that pass. Each kind is a *strand* with names of its own:
its pages are found, held and evicted by themselves.

    strand               blocks in the cache             a prefix of 5 blocks is found if
    layers that see all  0 1 2 3 4 5                     all of 0 … 4 are there
    layers of a window   0 – – 3 4 –                     those of 0 … 4 that it reaches back to

So a match may be shorter for one strand than for another; the shortest counts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from antiphon.errors import BugError
from antiphon.types import NO_PAGE, BlockKey, BlockRemoved, BlockStored, PageId, TokenId

from .page_groups import PageGroups
from .page_pool import KvListener, Match, NamedBlock, PagePool, ignore


@dataclass(slots=True, eq=False)
class _Strand:
    places: tuple[int, ...]
    """Which of a block's pages, in order, are its own."""
    back: int | None
    """So many blocks before the one that is computed next are read; None: all."""
    named: dict[BlockKey, NamedBlock]

    def needs(self, block: int, blocks: int) -> bool:
        """Whether a prefix of so many blocks is no use without this one."""
        return self.back is None or block >= blocks - self.back


class WindowedPagePool(PagePool):
    """Like `PagePool`, of pages that belong to several groups of layers: all have one size.

    Tables may have empty entries (`NO_PAGE`) wherever a group has nothing to hold. The listener is
    told of a block once all its strands have names, and again when the first one loses its own: it
    has the layers that see all, or the widest window. `named` lists the blocks that it was told of.
    """

    def __init__(
        self,
        pages: int,
        groups: PageGroups,
        *,
        prefix_cache: bool = True,
        listen: KvListener = ignore,
    ) -> None:
        super().__init__(pages, groups.block_pages, prefix_cache=prefix_cache, listen=listen)
        self._groups = groups
        kinds: list[tuple[Sequence[int], int | None]] = []
        if groups.lasting:
            kinds.append((groups.lasting, None))
        widest = sorted(groups.windows, key=lambda one: -one.size)
        kinds += ((window.places, groups.blocks_back(window)) for window in widest)
        entries = range(0, groups.block_pages, groups.entry_pages)
        self._strands = [
            _Strand(tuple(begin + place for begin in entries for place in places), back, {})
            for places, back in kinds
        ]
        self._strands[0].named = self._named
        self._told: dict[BlockKey, None] = {}
        """Blocks that the listener knows of."""

    def named(self) -> Sequence[BlockKey]:
        """As of `PagePool`: those that were here whole, and of which the first strand still is.

        A block that has come without its windows' pages is none: only the end of its prompt can be
        gone on from. Does not mutate.
        """
        return tuple(self._told)

    def block(self, key: BlockKey) -> BlockStored | None:
        """As of `PagePool`; None too if some of its pages have passed."""
        pages = self._whole(key)
        if pages is None:
            return None
        lead = self._named[key]
        return BlockStored(key, lead.parent, pages=pages, tenant=lead.tenant)

    def _whole(self, key: BlockKey) -> tuple[PageId, ...] | None:
        """The block's pages, if all are there."""
        row = [NO_PAGE] * self.pages_per_block
        for strand in self._strands:
            block = strand.named.get(key)
            if block is None:
                return None
            _fill(row, strand, block)
        return tuple(row)

    def match(self, keys: Iterable[BlockKey]) -> Match:
        """The longest prefix of `keys` that can be gone on from. Its pages are the entries of a
        table, empty where nobody will read. Does not mutate."""
        chain, runs, best = tuple(keys), [0] * len(self._strands), 0
        for blocks, key in enumerate(chain, start=1):
            usable = True
            for number, strand in enumerate(self._strands):
                runs[number] = runs[number] + 1 if key in strand.named else 0
                if strand.back is None and runs[number] < blocks:
                    return self._matched(chain[:best])
                usable &= strand.back is None or runs[number] >= min(blocks, strand.back)
            if usable:
                best = blocks
        return self._matched(chain[:best])

    def match_whole(self, keys: Iterable[BlockKey]) -> Match:
        """The longest prefix of which all pages of all blocks are there. Does not mutate."""
        chain: list[BlockKey] = []
        for key in keys:
            if not all(key in strand.named for strand in self._strands):
                break
            chain.append(key)
        return self._matched(tuple(chain), whole=True)

    def commit(
        self,
        key: BlockKey,
        parent: BlockKey | None,
        pages: Sequence[PageId],
        tokens: Sequence[TokenId] = (),
        tenant: bytes = b"",
    ) -> bool:
        """As of `PagePool`, strand by strand: what the cache lacks of the block, and what there is
        of it, gets its name.

        True if the listener is told of it: if nothing is missing any more.
        """
        if not self.prefix_cache:
            return False
        if len(pages) != self.pages_per_block:
            raise BugError(f"a block has {self.pages_per_block} pages, not {len(pages)}")
        for number, strand in enumerate(self._strands):
            mine = tuple(pages[place] for place in strand.places)
            if key in strand.named or NO_PAGE in mine:
                continue
            for page in mine:
                if not self._references[page] or self._block_of[page] is not None:
                    raise BugError(f"page {page} can't be named: it is nobody's, or has a block")
            block = NamedBlock(key, mine, parent, tenant, live=len(mine), strand=number)
            for page in mine:
                self._block_of[page] = block
            strand.named[key] = block
        whole = None if key in self._told else self._whole(key)
        if whole is None:
            return False
        self._told[key] = None
        self._listen(BlockStored(key, parent, pages=whole, tokens=tuple(tokens), tenant=tenant))
        return True

    def share(self, pages: Iterable[PageId]) -> None:
        """As of `PagePool`; empty entries are passed over."""
        super().share(page for page in pages if page != NO_PAGE)

    def release(self, pages: Sequence[PageId]) -> None:
        """As of `PagePool`; empty entries are passed over."""
        super().release([page for page in pages if page != NO_PAGE])

    def forget(self, pages: Iterable[PageId]) -> None:
        """As of `PagePool`; with a block all of its strands lose their name."""
        of_pages = (self._block_of[page] for page in pages if page != NO_PAGE)
        self.forget_names([block.key for block in of_pages if block is not None])

    def forget_names(self, keys: Iterable[BlockKey]) -> None:
        """Nobody finds these blocks again: their content is in doubt."""
        for key in keys:
            for strand in self._strands:
                block = strand.named.get(key)
                if block is not None:
                    self._forget(block)

    def held_alone(
        self, table: Sequence[PageId], entries: range, besides: frozenset[PageId]
    ) -> int:
        """How many pages of a table nobody else refers to, nor `besides`.

        `entries`: outside of them the table has no pages of windows.
        """
        size, groups = self._groups.entry_pages, self._groups
        count, references = 0, self._references
        if groups.lasting:
            shared = self.shared_pages(table, besides) // size
            count = (len(table) // size - shared) * len(groups.lasting)
        part = table[entries.start * size : entries.stop * size]
        for window in groups.windows:
            for place in window.places:
                count += sum(
                    page != NO_PAGE and references[page] == 1 and page not in besides
                    for page in part[place::size]
                )
        return count

    def _matched(self, chain: tuple[BlockKey, ...], *, whole: bool = False) -> Match:
        pages: list[PageId] = []
        idle = 0
        for number, key in enumerate(chain):
            row = [NO_PAGE] * self.pages_per_block
            for strand in self._strands:
                if whole or strand.needs(number, len(chain)):
                    block = strand.named[key]
                    idle += 0 if block.live else len(block.pages)
                    _fill(row, strand, block)
            pages += row
        return Match(keys=chain, pages=tuple(pages), idle_pages=idle)

    def _still_there(self, match: Match) -> Sequence[NamedBlock]:
        return list(self._kept(match))

    def _kept(self, match: Match) -> Iterator[NamedBlock]:
        size = self.pages_per_block
        for number, key in enumerate(match.keys):
            row = match.pages[number * size : (number + 1) * size]
            for strand in self._strands:
                mine = tuple(row[place] for place in strand.places)
                if mine[0] == NO_PAGE:
                    continue
                block = strand.named.get(key)
                if block is None or block.pages != mine:
                    raise BugError("a match was kept after the pool had changed")
                yield block

    def _unname(self, block: NamedBlock, *, doubtful: bool = False) -> None:
        del self._strands[block.strand].named[block.key]
        for page in block.pages:
            self._block_of[page] = None
        if block.strand == 0 and (doubtful or block.key in self._told):
            self._told.pop(block.key, None)
            self._listen(BlockRemoved(block.key, doubtful))


def _fill(row: list[PageId], strand: _Strand, block: NamedBlock) -> None:
    for place, page in zip(strand.places, block.pages, strict=True):
        row[place] = page
