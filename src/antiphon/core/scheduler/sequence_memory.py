"""The pages of sequences: taken at the start, grown, shared by a fork, named, given back."""

from antiphon.core.kv import Match, OutOfMemory, PagePool
from antiphon.errors import BugError
from antiphon.types import PageCopy

from .sequence import SequenceState

NEVER = 2**62
"""A `next_commit` that no sequence reaches: its blocks get no names."""


class SequenceMemory:
    """Keeps each sequence's page table in step with the pool. Decides nothing."""

    def __init__(self, pool: PagePool, *, page_tokens: int) -> None:
        self.pool = pool
        self.page_tokens = page_tokens
        self.block_tokens = pool.pages_per_block * page_tokens

    def pages_for(self, tokens: int) -> int:
        """Pages that hold so many tokens."""
        return -(-tokens // self.page_tokens)

    def tail_pages(self, sequence: SequenceState) -> int:
        """Pages of the prompt's incomplete last block: what each follower needs of its own."""
        return self.pages_for(sequence.prompt_len % self.block_tokens)

    def match(self, sequence: SequenceState) -> Match:
        """Cached blocks that the sequence may begin with. Leaves one token at least to compute.

        Mutates nothing but the sequence's memo of its block keys.
        """
        if not self.pool.prefix_cache:
            return Match()
        blocks = (len(sequence.tokens) - 1) // self.block_tokens
        sequence.owner.block_keys.extend(sequence.block_keys, sequence.tokens, blocks)
        return self.pool.match(sequence.block_keys[:blocks])

    def start(self, sequence: SequenceState, match: Match) -> OutOfMemory | None:
        """Take the match and new pages for all tokens, and the followers' own pages.

        None: done. On `OutOfMemory` nothing has changed.
        """
        own = self.pages_for(len(sequence.tokens)) - len(match.pages)
        tail = self.tail_pages(sequence)
        taken = self.pool.reserve(own + tail * len(sequence.followers), keep=match)
        if isinstance(taken, OutOfMemory):
            return taken
        sequence.table = [*match.pages, *taken.pages[:own]]
        sequence.capacity = len(sequence.table) * self.page_tokens
        sequence.computed = len(match.pages) * self.page_tokens
        named = self.pool.prefix_cache
        sequence.next_commit = sequence.computed + self.block_tokens if named else NEVER
        sequence.sent = 0
        for number, follower in enumerate(sequence.followers):
            first = own + number * tail
            follower.table = list(taken.pages[first : first + tail])
        return None

    def grow(self, sequences: list[SequenceState]) -> OutOfMemory | None:
        """One more page for each, or for none of them."""
        taken = self.pool.reserve(len(sequences))
        if isinstance(taken, OutOfMemory):
            return taken
        for sequence, page in zip(sequences, taken.pages, strict=True):
            sequence.table.append(page)
            sequence.capacity += self.page_tokens
        return None

    def fork(self, leader: SequenceState, follower: SequenceState) -> None:
        """The follower begins after the prompt: complete blocks shared, the incomplete one copied.

        The copies are made by the follower's first chunk; until then it refers to their sources.
        """
        whole = leader.prompt_len // self.block_tokens
        shared = leader.table[: whole * self.pool.pages_per_block]
        follower.sources = leader.table[len(shared) : len(shared) + len(follower.table)]
        self.pool.share(shared)
        self.pool.share(follower.sources)
        follower.table = shared + follower.table
        follower.capacity = len(follower.table) * self.page_tokens
        follower.computed = leader.prompt_len
        follower.block_keys = leader.block_keys[:whole]
        named = leader.next_commit != NEVER
        follower.next_commit = (whole + 1) * self.block_tokens if named else NEVER
        follower.sent = 0

    def hand_over(self, leader: SequenceState, heir: SequenceState) -> None:
        """The leader has ended before its followers forked: one of them goes on in its place."""
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
        per_block = self.pool.pages_per_block
        while sequence.next_commit <= sequence.computed:
            blocks = sequence.next_commit // self.block_tokens
            keys = sequence.block_keys
            sequence.owner.block_keys.extend(keys, sequence.tokens, blocks)
            parent = keys[blocks - 2] if blocks > 1 else None
            pages = sequence.table[(blocks - 1) * per_block : blocks * per_block]
            self.pool.commit(keys[blocks - 1], parent, pages)
            sequence.next_commit += self.block_tokens

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
