"""The pages of sequences: taken at the start, grown, shared by a fork, named, given back."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice, takewhile

from antiphon.core.kv import Match, OutOfMemory, PagePool
from antiphon.errors import BugError
from antiphon.types import BlockKey, PageCopy, PageId, TokenId

from .sequence import SequenceState, follower_pages, shared_tokens

NEVER = 2**62
"""A `next_commit` that no sequence reaches: its blocks get no names."""


class SequenceMemory:
    """Keeps each sequence's page table in step with the pool. Decides nothing."""

    def __init__(self, pool: PagePool, *, page_tokens: int, entry_pages: int = 1) -> None:
        """`entry_pages`: so many pages together hold `page_tokens` tokens."""
        self.pool = pool
        self.page_tokens = page_tokens
        self.entry_pages = entry_pages
        self.block_tokens = pool.pages_per_block // entry_pages * page_tokens

    def pages_for(self, tokens: int) -> int:
        """Pages that hold so many tokens."""
        return -(-tokens // self.page_tokens) * self.entry_pages

    def tokens_in(self, pages: int) -> int:
        """Tokens that so many pages hold, all of whole entries."""
        return pages // self.entry_pages * self.page_tokens

    def party_pages(self, leader: SequenceState) -> int:
        """Pages that a sequence and its followers need to start, cached ones included."""
        own = sum(self._own_pages(follower) for follower in leader.followers)
        return self.pages_for(leader.length) + own

    def match(self, sequence: SequenceState) -> Match:
        """Cached blocks that the sequence may begin with, then those that its followers may use.

        Leaves each one token at least to compute. Mutates nothing but memos of block keys.
        """
        if not self.pool.prefix_cache:
            return Match()
        keys = self._names(sequence)
        if not (sequence.followers and sequence.followers[-1].resumed_len):
            return self._found(keys)
        found = dict.fromkeys(self._found(keys).keys)
        for follower in sequence.followers:
            if follower.resumed_len:
                shared = follower.prompt_len // self.block_tokens
                found |= dict.fromkeys(self._found(self._names(follower)).keys[shared:])
        return self._found(found)

    def _found(self, keys: Iterable[BlockKey]) -> Match:
        """What the cache has of a chain of blocks."""
        return self.pool.match(keys)

    def start(self, sequence: SequenceState, match: Match) -> OutOfMemory | None:
        """Take the match and new pages for all tokens, and the followers' own pages.

        None: done. On `OutOfMemory` nothing has changed.
        """
        if not sequence.followers:
            wanted = self.pages_for(sequence.length) - len(match.pages)
            taken = self.pool.reserve(wanted, keep=match)
            if isinstance(taken, OutOfMemory):
                return taken
            self._lay_out(sequence, [*match.pages, *taken.pages], len(match.pages))
            return None
        return self._start_party(sequence, match)

    def _start_party(self, leader: SequenceState, match: Match) -> OutOfMemory | None:
        """Lay out the tables of several sequences over what they match and new pages."""
        per_block = self.pool.pages_per_block
        whole = leader.prompt_len // self.block_tokens
        cached = {
            key: match.pages[block * per_block : (block + 1) * per_block]
            for block, key in enumerate(match.keys)
        }
        hits = [self._hits(leader, cached, 0)]
        hits += (
            self._hits(one, cached, whole) if one.resumed_len else [] for one in leader.followers
        )
        wanted = self.party_pages(leader) - sum(len(pages) for pages in hits)
        taken = self.pool.reserve(wanted, keep=match)
        if isinstance(taken, OutOfMemory):
            return taken
        self._share_again(hits)
        new = list(taken.pages)
        rest = self.pages_for(leader.length) - len(hits[0])
        self._lay_out(leader, hits[0] + new[:rest], len(hits[0]))
        del new[:rest]
        for follower, own_hits in zip(leader.followers, hits[1:], strict=True):
            rest = self._own_pages(follower) - len(own_hits)
            own, new = new[:rest], new[rest:]
            if not follower.resumed_len:
                follower.table = own
                continue
            begin = leader.table[: whole * per_block]
            self.pool.share(begin)
            begin += own_hits
            self._lay_out(follower, begin + own, len(begin))
        return None

    def _hits(
        self, sequence: SequenceState, cached: Mapping[BlockKey, Sequence[PageId]], first: int
    ) -> list[PageId]:
        """Pages of the run of cached blocks that the sequence has from block `first` on."""
        if not cached:
            return []
        run = takewhile(cached.__contains__, self._names(sequence)[first:])
        return [page for key in run for page in cached[key]]

    def _share_again(self, tables: Iterable[Iterable[PageId]]) -> None:
        """A match comes with one reference to each page: add one wherever a page comes again."""
        referred: set[PageId] = set()
        for table in tables:
            self.pool.share(page for page in table if page in referred)
            referred.update(table)

    def _lay_out(self, sequence: SequenceState, table: list[PageId], known: int) -> None:
        """Give it its table, of which the first `known` pages have their content."""
        sequence.table = table
        sequence.capacity = self.tokens_in(len(table))
        sequence.computed = self.tokens_in(known)
        named = self.pool.prefix_cache
        sequence.next_commit = sequence.computed + self.block_tokens if named else NEVER
        sequence.sent = 0

    def _names(self, sequence: SequenceState) -> list[BlockKey]:
        """Keys of all blocks that are complete before the last token."""
        blocks = (sequence.length - 1) // self.block_tokens
        self._name(sequence, blocks)
        return sequence.block_keys[:blocks]

    def _name(self, sequence: SequenceState, blocks: int) -> None:
        """Compute the keys of its first blocks, as far as that was not done before."""
        keys, size = sequence.block_keys, self.block_tokens
        for block in range(len(keys), blocks):
            tokens = sequence.tokens(block * size, (block + 1) * size)
            keys.append(sequence.owner.block_keys.key(keys[-1] if keys else None, tokens))

    def _own_pages(self, follower: SequenceState) -> int:
        entries = follower_pages(
            follower, page_tokens=self.page_tokens, block_tokens=self.block_tokens
        )
        return entries * self.entry_pages

    def make_room(self, running: Collection[SequenceState]) -> OutOfMemory | None:
        """What the next step of these sequences may write to; or nothing has changed."""
        full = [one for one in running if one.computed == one.capacity]
        return self.grow(full) if full else None

    def grow(self, sequences: list[SequenceState]) -> OutOfMemory | None:
        """One more entry for each, or for none of them."""
        taken = self.pool.reserve(len(sequences) * self.entry_pages)
        if isinstance(taken, OutOfMemory):
            return taken
        pages = iter(taken.pages)
        for sequence in sequences:
            sequence.table += islice(pages, self.entry_pages)
            sequence.capacity += self.page_tokens
        return None

    def grow_ahead(self, sequences: Collection[SequenceState], tokens: int) -> OutOfMemory | None:
        """Room for so many tokens more for each, or for none of them."""
        wanted = [
            max(0, self.pages_for(one.computed + tokens) - len(one.table)) for one in sequences
        ]
        taken = self.pool.reserve(sum(wanted))
        if isinstance(taken, OutOfMemory):
            return taken
        pages = iter(taken.pages)
        for sequence, count in zip(sequences, wanted, strict=True):
            sequence.table += islice(pages, count)
            sequence.capacity = self.tokens_in(len(sequence.table))
        return None

    def known_pages(self, sequence: SequenceState, end: int) -> int:
        """How much of its table the engine has to know for a chunk that ends before `end`."""
        return len(sequence.table)

    def lacking(self, sequence: SequenceState, end: int, *, alone: bool) -> Sequence[int]:
        """Which places of its table KV from elsewhere must fill for position `end` to be next.

        `alone`: no other sequence of its party may have to go on from what it shares with it.
        """
        return range(self.pages_for(sequence.computed), self.pages_for(end))

    def blocks_back(self) -> tuple[int, ...]:
        """As `Fetch.back`: how far back the pages of a block are read, of a sequence alone."""
        return ()

    def pass_by(self, sequence: SequenceState, now: int) -> None:
        """Give back the pages that no position from `now` on reads: here there are none."""

    def fork(self, leader: SequenceState, follower: SequenceState) -> None:
        """The follower begins after the prompt.

        One without tokens shares the complete blocks and copies the incomplete one: its first chunk
        does, until then it refers to their sources. In a prefill it has nothing to write, and so
        shares all. One with tokens from earlier attempts has its table already.
        """
        named = leader.next_commit != NEVER
        if follower.resumed_len:
            follower.next_commit = follower.next_commit if named else NEVER
            return
        whole = leader.prompt_len // self.block_tokens
        complete = whole * self.pool.pages_per_block
        if follower.owner.lease is not None:
            complete = len(leader.table)
        shared = leader.table[:complete]
        follower.sources = leader.table[complete : complete + len(follower.table)]
        self.pool.share(shared)
        self.pool.share(follower.sources)
        follower.table = shared + follower.table
        follower.capacity = self.tokens_in(len(follower.table))
        follower.computed = leader.prompt_len
        follower.block_keys = leader.block_keys[:whole]
        follower.next_commit = (whole + 1) * self.block_tokens if named else NEVER
        follower.sent = 0

    def hand_over(self, leader: SequenceState, heir: SequenceState) -> None:
        """The leader has ended before its followers forked: one of them goes on in its place."""
        if heir.resumed_len:
            shared = shared_tokens(heir, self.block_tokens)
            if leader.computed < shared:
                heir.computed = leader.computed
            if heir.next_commit > leader.next_commit or leader.next_commit == NEVER:
                heir.next_commit = leader.next_commit
            return
        self.pool.release(heir.table)
        heir.table, leader.table = leader.table, []
        heir.capacity, heir.computed = leader.capacity, leader.computed
        heir.block_keys, heir.next_commit = leader.block_keys, leader.next_commit
        heir.sent = 0

    def copies(self, sequence: SequenceState) -> list[PageCopy]:
        """What a forked sequence's first chunk has to copy."""
        first = sequence.prompt_len // self.block_tokens * self.pool.pages_per_block
        return [
            PageCopy(source, target)
            for source, target in zip(sequence.sources, sequence.table[first:], strict=False)
        ]

    def copied(self, sequence: SequenceState) -> None:
        """The copies were made: their sources are no longer needed."""
        self.pool.release(sequence.sources)
        sequence.sources = []

    def commit(self, sequence: SequenceState) -> None:
        """Name the blocks that are complete now."""
        per_block, size = self.pool.pages_per_block, self.block_tokens
        owner, table, keys = sequence.owner, sequence.table, sequence.block_keys
        first, complete = sequence.next_commit // size - 1, sequence.computed // size
        if first >= complete:
            return
        self._name(sequence, complete)
        for block in range(first, complete):
            tokens = self.told_tokens(sequence, block)
            pages = table[block * per_block : (block + 1) * per_block]
            parent = keys[block - 1] if block else None
            self.pool.commit(keys[block], parent, pages, tokens, owner.tenant)
        sequence.next_commit = (complete + 1) * size

    def told_tokens(self, sequence: SequenceState, block: int) -> Sequence[TokenId]:
        """What the pool's listener is told of the tokens of a block that gets its name."""
        size = self.block_tokens
        return sequence.tokens(block * size, (block + 1) * size)

    def doubt(self, sequence: SequenceState) -> None:
        """Its KV may be wrong: nobody finds its blocks again, and no more of them get names."""
        self.pool.forget(sequence.table)
        sequence.next_commit = NEVER

    def release(self, sequence: SequenceState) -> None:
        """Give back all that the sequence refers to; what it computed counts no more."""
        if sequence.in_flight:
            raise BugError(f"{sequence.key} gives back pages that a running step uses")
        self.pool.release(sequence.sources)
        self.pool.release(sequence.table)
        sequence.sources = []
        sequence.table = []
        sequence.capacity = sequence.computed = sequence.sent = 0
