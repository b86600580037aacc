"""The forecast of memory for models with sliding windows: what a window holds, it holds for life.

Layers that see all grow with their sequence, as in `admission`. A window's pages grow up to what it
spans with a step's tokens and no further. They are charged at once, at the most that the sequence
will reach: the forecast is never below what comes, and above it while the window is not full.
"""

from antiphon.core.kv import Match, PageGroups, WindowedPagePool
from antiphon.types import NO_PAGE, PageId, SchedulerConfig

from .admission import Admission, Load
from .history import History
from .sequence import SequenceState, follower_pages
from .windowed_memory import is_slim


class WindowedAdmission(Admission):
    """Like `Admission`, over a pool whose pages belong to groups of layers."""

    def __init__(
        self,
        config: SchedulerConfig,
        pool: WindowedPagePool,
        history: History,
        *,
        groups: PageGroups,
        max_sequences: int,
    ) -> None:
        super().__init__(
            config, pool, history, page_tokens=groups.page_tokens, max_sequences=max_sequences
        )
        self._windowed, self._groups = pool, groups
        self._growing_pages = len(groups.lasting)

    def _besides(self, match: Match) -> frozenset[PageId]:
        return frozenset(match.pages)

    def _held_alone(self, sequence: SequenceState, besides: frozenset[PageId]) -> int:
        return self._windowed.held_alone(sequence.table, self._span(sequence), besides)

    def _known(self, match: Match) -> int:
        return len(match.pages) // self._groups.entry_pages * self._page_tokens

    def _taken(self, match: Match) -> int:
        return len(match.pages) - match.pages.count(NO_PAGE)

    def _wanted(self, candidate: SequenceState, match: Match) -> int:
        groups = self._groups
        if not is_slim(candidate, self._known(match)):
            followers = sum(self._follower_pages(follower) for follower in candidate.followers)
            return groups.whole_pages(candidate.length) + followers - match.pages.count(NO_PAGE)
        return groups.entries(candidate.length) * len(groups.lasting) + self._most(candidate)

    def _follower_pages(self, follower: SequenceState) -> int:
        groups = self._groups
        entries = follower_pages(
            follower, page_tokens=groups.page_tokens, block_tokens=groups.block_tokens
        )
        return entries * groups.entry_pages

    def _charge(
        self, loads: list[Load], sequence: SequenceState, own: int, capacity: int, delay: int
    ) -> None:
        super()._charge(loads, sequence, own, capacity, delay)
        most = self._most(sequence)
        leader = len(loads) - 1 - len(sequence.followers)
        life, pages, slack = loads[leader]
        if sequence.table:
            loads[leader] = Load(life, pages + max(0, most - self._passing(sequence)), slack)
        for place in range(leader + 1, len(loads)):
            loads[place] = Load(life, most, 0)

    def _most(self, sequence: SequenceState) -> int:
        """The windows' pages that it will hold, if it gets as long as it is taken to get."""
        generated = sequence.outputs
        predicted = self._length(generated, sequence.owner.max_tokens)
        step_tokens = self._step_tokens if sequence.uncomputed > 1 else 1
        return self._groups.passing_pages(sequence.length - generated + predicted, step_tokens)

    def _passing(self, sequence: SequenceState) -> int:
        """The windows' pages that it holds now."""
        groups = self._groups
        per_block, last = groups.block_tokens // groups.page_tokens, groups.entries(sequence.filled)
        return sum(
            len(one.places) * (last - groups.first_block(one, sequence.passed_at) * per_block)
            for one in groups.windows
        )

    def _span(self, sequence: SequenceState) -> range:
        """Entries of a table that may have pages of windows."""
        groups = self._groups
        per_block = groups.block_tokens // groups.page_tokens
        first = min(groups.first_block(one, sequence.passed_at) for one in groups.windows)
        return range(first * per_block, groups.entries(sequence.filled))
