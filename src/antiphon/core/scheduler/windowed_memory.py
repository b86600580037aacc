"""The pages of sequences whose layers see through sliding windows: what passes is given back.

    computed                 ▼            ▼ + a step
    pages of every position  █████████████████████████    layers that see all: from the start on
    pages of a window        ·······█████████████·········    taken before a step, then given back

A sequence whose KV moves, or whose prompt others share, has room for all layers meanwhile: what
does not come is computed there. But no more moves than is read again: of one sequence, what its
windows see at the end, be it handed over or fetched. A prompt that several share moves whole.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from antiphon.core.kv import Match, OutOfMemory, PageGroups, WindowedPagePool
from antiphon.types import NO_PAGE, BlockKey, PageId

from .sequence import SequenceState
from .sequence_memory import SequenceMemory


def is_slim(sequence: SequenceState, known: int) -> bool:
    """Whether a sequence that starts with `known` tokens in place takes its windows' pages only."""
    owner = sequence.owner
    moves = owner.lease is not None or owner.adoption is not None or sequence.coming > known
    return not (moves or sequence.followers)


class WindowedMemory(SequenceMemory):
    """Like `SequenceMemory`, over a pool whose pages belong to groups of layers.

    No step computes more than `step_tokens` tokens of a sequence.
    """

    def __init__(self, pool: WindowedPagePool, *, groups: PageGroups, step_tokens: int) -> None:
        super().__init__(pool, page_tokens=groups.page_tokens, entry_pages=groups.entry_pages)
        self._windowed, self._groups, self._step_tokens = pool, groups, step_tokens
        self._passing = [place for window in groups.windows for place in window.places]

    def match(self, sequence: SequenceState) -> Match:
        """As of `SequenceMemory`; whole blocks if they are to be shared."""
        if self.pool.prefix_cache and not sequence.followers:
            return self.pool.match(self._names(sequence))
        return super().match(sequence)

    def _found(self, keys: Iterable[BlockKey]) -> Match:
        return self._windowed.match_whole(keys)

    def start(self, sequence: SequenceState, match: Match) -> OutOfMemory | None:
        """As of `SequenceMemory`, but a window's pages for the first step only."""
        known = self.tokens_in(len(match.pages))
        if not is_slim(sequence, known):
            short = super().start(sequence, match)
            if short is None and not sequence.followers:
                sequence.passed_at = known
            return short
        first, last = self._groups.entries(known), self._groups.entries(sequence.length)
        filled = self._groups.entries(min(sequence.length, known + self._step_tokens))
        lasting, passing = self._groups.lasting, self._passing
        taken = self.pool.reserve(
            (last - first) * len(lasting) + (filled - first) * len(passing), keep=match
        )
        if isinstance(taken, OutOfMemory):
            return taken
        table = [*match.pages, *[NO_PAGE] * ((last - first) * self.entry_pages)]
        pages = iter(taken.pages)
        for entry in range(first, last):
            for place in lasting:
                table[entry * self.entry_pages + place] = next(pages)
        self._put(table, first, filled, list(pages))
        self._lay_out(sequence, table, len(match.pages))
        sequence.passed_at, sequence.filled = known, filled * self.page_tokens
        return None

    def _put(self, table: list[PageId], first: int, last: int, pages: list[PageId]) -> None:
        """The windows' pages of the entries from `first` to before `last`."""
        new = iter(pages)
        for entry in range(first, last):
            for place in self._passing:
                table[entry * self.entry_pages + place] = next(new)

    def _lay_out(self, sequence: SequenceState, table: list[PageId], known: int) -> None:
        super()._lay_out(sequence, table, known)
        sequence.passed_at, sequence.filled = 0, sequence.capacity

    def make_room(self, running: Collection[SequenceState]) -> OutOfMemory | None:
        """As of `SequenceMemory`; the windows' pages of the next step, too.

        Those that have passed are given back first: nothing computes now.
        """
        for one in running:
            self._pass_by(one)
        short = super().make_room(running)
        if short is not None:
            return short
        lacking = [(one, self._reach(one)) for one in running if one.filled < self._reach(one)]
        wanted = [
            self._groups.entries(reach) - self._groups.entries(one.filled) for one, reach in lacking
        ]
        taken = self.pool.reserve(sum(wanted) * len(self._passing))
        if isinstance(taken, OutOfMemory):
            return taken
        pages = iter(taken.pages)
        for (one, _), count in zip(lacking, wanted, strict=True):
            first = self._groups.entries(one.filled)
            self._put(
                one.table, first, first + count, list(islice(pages, count * len(self._passing)))
            )
            one.filled = (first + count) * self.page_tokens
        return None

    def _reach(self, sequence: SequenceState) -> int:
        """The end of what the next step may compute of it."""
        return min(sequence.length, sequence.computed + self._step_tokens)

    def grow(self, sequences: list[SequenceState]) -> OutOfMemory | None:
        """As of `SequenceMemory`: an entry has pages of all layers."""
        short = super().grow(sequences)
        return short or self._all_filled(sequences)

    def grow_ahead(self, sequences: Collection[SequenceState], tokens: int) -> OutOfMemory | None:
        """As of `SequenceMemory`."""
        short = super().grow_ahead(sequences, tokens)
        return short or self._all_filled(sequences)

    @staticmethod
    def _all_filled(sequences: Iterable[SequenceState]) -> None:
        """They decode: all behind them was filled before."""
        for one in sequences:
            one.filled = one.capacity

    def known_pages(self, sequence: SequenceState, end: int) -> int:
        """As of `SequenceMemory`: not those that later chunks will fill."""
        return min(len(sequence.table), self.pages_for(end))

    def lacking(self, sequence: SequenceState, end: int, *, alone: bool) -> Sequence[int]:
        """As of `SequenceMemory`: of a sequence by itself, what `end` does not see is left out."""
        places = super().lacking(sequence, end, alone=alone)
        if not alone:
            return places
        first = self._groups.first_places(end)
        return [place for place in places if place >= first[place % self.entry_pages]]

    def blocks_back(self) -> tuple[int, ...]:
        """As of `SequenceMemory`: layers that see all read every block."""
        groups = self._groups
        entry = [0] * self.entry_pages
        for window in groups.windows:
            for place in window.places:
                entry[place] = groups.blocks_back(window)
        return tuple(entry * (self.block_tokens // self.page_tokens))

    def pass_by(self, sequence: SequenceState, now: int) -> None:
        """As of `SequenceMemory`."""
        at = sequence.passed_at
        gone: list[PageId] = []
        size, table, groups = self.entry_pages, sequence.table, self._groups
        entries = self.block_tokens // self.page_tokens
        for window in groups.windows:
            first, last = (groups.first_block(window, position) for position in (at, now))
            for entry in range(first * entries, last * entries):
                for place in window.places:
                    gone.append(table[entry * size + place])
                    table[entry * size + place] = NO_PAGE
        sequence.passed_at = now
        if gone:
            self.pool.release(gone)

    def _pass_by(self, sequence: SequenceState) -> None:
        """Give back what no position from `computed` on sees, unless others are to have it."""
        if not sequence.followers and sequence.owner.lease is None:
            self.pass_by(sequence, sequence.computed)

    def fork(self, leader: SequenceState, follower: SequenceState) -> None:
        """As of `SequenceMemory`: until now both had all pages."""
        super().fork(leader, follower)
        follower.filled = follower.capacity

    def hand_over(self, leader: SequenceState, heir: SequenceState) -> None:
        """As of `SequenceMemory`."""
        super().hand_over(leader, heir)
        heir.filled = heir.capacity

    def doubt(self, sequence: SequenceState) -> None:
        """As of `SequenceMemory`; what has passed is in doubt, too."""
        super().doubt(sequence)
        complete = sequence.computed // self.block_tokens
        self._windowed.forget_names(sequence.block_keys[:complete])

    def release(self, sequence: SequenceState) -> None:
        """As of `SequenceMemory`."""
        super().release(sequence)
        sequence.filled = sequence.passed_at = 0
