"""May the next sequence start now? By the predicted peak of memory, LightLLM's Efficient Router.

Running sequences grow until they end; then they give everything back. Sorted by remaining life,
longest first, the first i are those alive when number i ends, and each has grown by its life b_i:

    peak = max over i of  shared + own_1 + … + own_i  + growth of i sequences in b_i steps

A sequence starts if the peak with it stays below the memory less a reserve. Lives come from a rule
(`length_rules`: by default the Past-Future scheduler's, ASPLOS 2025), plus the steps that prefills
wait for each other. So memory is filled, and what runs is (almost) never thrown out again.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple

from antiphon.core.kv import Match, PagePool
from antiphon.types import PageId, SchedulerConfig

from .history import History
from .length_rules import length_rule
from .sequence import SequenceState, follower_pages, in_turn, is_prefill

_LEFT_TO_OTHERS = 8
"""Whoever has more than an equal share of a worker that others use, too, leaves one in so many of
its pages to them: trunk reservation, as in telephone networks (Akinpelu 1984). A small part is
enough for those who come seldom to find room at once."""


class DeferReason(StrEnum):
    """Why the head of the queue does not start now."""

    SEQUENCES = "sequences"
    """As many run as may run at once."""
    BUDGET = "budget"
    """The step is full without it: it would only hold memory and wait."""
    PEAK = "peak"
    """Memory would run out later, as predicted."""
    PAGES = "pages"
    """Memory is in use now."""
    RESERVED = "reserved"
    """The last part of memory is left to tenants that have less of what runs."""
    OFFERS = "offers"
    """Half of the memory is for KV that others are to take, and that half is full."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The head of the queue waits; `message` has the numbers."""

    reason: DeferReason
    message: str


class Load(NamedTuple):
    """One sequence as the forecast sees it."""

    life_steps: int
    own_pages: int
    """Pages that return when it ends."""
    slack_tokens: int
    """Room in its last page."""


def peak_pages(
    loads: Iterable[Load], *, shared_pages: int, page_tokens: int, entry_pages: int = 1
) -> int:
    """Most pages in use at any future moment, if lives are as predicted and nobody joins.

    Shared pages count as held throughout. Growth is rounded up to pages for each sequence, and
    `entry_pages` of them are taken for `page_tokens` tokens.
    O(n log n). LightLLM `ChunkedPrefillQueue`, here in pages of any size.
    """
    peak = held = shared_pages
    offset = 0
    for alive, load in enumerate(sorted(loads, reverse=True), start=1):
        held += load.own_pages
        offset += page_tokens - 1 - min(load.slack_tokens, page_tokens - 1)
        growth = (alive * load.life_steps + offset) // page_tokens * entry_pages
        peak = max(peak, held + growth)
    return peak


@dataclass(slots=True)
class Crowd:
    """Sums over what runs, members that start in this step included."""

    sequences: int = 0
    decodes: int = 0
    prefills: list[SequenceState] = field(default_factory=list)
    worst_pages: int = 0
    """Pages that all would need at their longest, if they shared none."""
    tenants: Counter[bytes] = field(default_factory=Counter)
    """How many of each there are."""

    def join(self, sequence: SequenceState) -> None:
        """Count one in, with its followers."""
        members = 1 + len(sequence.followers)
        self.sequences += members
        self.worst_pages += members * sequence.owner.worst_pages
        self.tenants[sequence.owner.tenant] += members
        if is_prefill(sequence):
            self.prefills.append(sequence)
        elif sequence.running:
            self.decodes += 1

    def has_most(self, candidate: SequenceState) -> bool:
        """Has its tenant more than an equal share of what runs, beside others that run, too?"""
        tenants = self.tenants
        return tenants[candidate.owner.tenant] * len(tenants) > tenants.total() > 0

    def tokens_before(self, candidate: SequenceState) -> int:
        """Tokens to compute before the candidate's first: all decodes, and prefills in turn."""
        prefills = takewhile(lambda one: one is not candidate, in_turn([*self.prefills, candidate]))
        return self.decodes + sum(one.uncomputed for one in prefills)


class Admission:
    """Applies the rule to what runs and to one candidate. Changes nothing."""

    def __init__(
        self,
        config: SchedulerConfig,
        pool: PagePool,
        history: History,
        *,
        page_tokens: int,
        max_sequences: int,
    ) -> None:
        self._pool = pool
        self._growing_pages = 1
        """What a sequence grows by for each page of tokens."""
        self._length = length_rule(config.admission, history)
        self._page_tokens = page_tokens
        self._step_tokens = config.max_batched_tokens
        self._max_sequences = max_sequences
        self._usable_pages = pool.total_pages - int(pool.total_pages * config.reserve_fraction)

    def crowded(self, candidate: SequenceState, crowd: Crowd) -> Deferred | None:
        """Why there is no place for `candidate` in the next step, whatever memory it needs."""
        wanted = 1 + len(candidate.followers)
        if crowd.sequences + wanted > self._max_sequences:
            return Deferred(
                DeferReason.SEQUENCES,
                f"{crowd.sequences} sequences run, {wanted} more exceed {self._max_sequences}",
            )
        if candidate.owner.adoption is not None:
            return None
        before = crowd.tokens_before(candidate)
        # What is fetched comes while a step computes: such a prompt is wanted a step later.
        steps = 2 if candidate.coming else 1
        if before >= steps * self._step_tokens:
            return Deferred(
                DeferReason.BUDGET,
                f"{before} tokens fill the next step, which computes {self._step_tokens}",
            )
        return None

    def short_of_memory(
        self,
        candidate: SequenceState,
        match: Match,
        running: Collection[SequenceState],
        crowd: Crowd,
    ) -> Deferred | None:
        """Why `candidate` with this prefix match had better wait for memory; None: it may start.

        Where nothing runs it always may: whatever was taken in fits alone. Where all fit at their
        longest there is nothing to predict. Who was preempted had its room before, and needs to
        leave none.
        """
        worst = crowd.worst_pages + (1 + len(candidate.followers)) * candidate.owner.worst_pages
        usable = own = self._usable_pages
        if crowd.has_most(candidate) and not candidate.preempted:
            own -= usable // _LEFT_TO_OTHERS
        if not running or worst <= own:
            return None
        peak = self.peak(running, candidate, match)
        if peak <= own:
            return None
        return Deferred(
            DeferReason.PEAK if min(worst, peak) > usable else DeferReason.RESERVED,
            f"memory use would peak at {peak} pages of {own} usable",
        )

    def short_for_offer(
        self,
        new_pages: int,
        promised_pages: int,
        idle_pages: int,
        running: Collection[SequenceState],
    ) -> Deferred | None:
        """Why a prefill whose KV is to be offered had better wait; None: it may start.

        With its `new_pages` what is offered and what will be stays within half of the memory, so
        that slow takers never stop those who decode here. Its pages, of which `idle_pages` nobody
        else holds, don't grow, and are not taken from under those who do.
        """
        half = self._pool.total_pages // 2
        if promised_pages + new_pages > half:
            return Deferred(
                DeferReason.OFFERS,
                f"{promised_pages} pages are promised, {new_pages} more exceed {half}, which is "
                "half of the memory",
            )
        if not any(one.owner.lease is None for one in running):
            return None
        peak = self.peak(running) + new_pages + idle_pages
        if peak <= self._usable_pages:
            return None
        return Deferred(
            DeferReason.PEAK,
            f"memory use would peak at {peak} pages of {self._usable_pages} usable",
        )

    def peak(
        self,
        running: Collection[SequenceState],
        candidate: SequenceState | None = None,
        match: Match | None = None,
    ) -> int:
        """Predicted peak of pages in use, with the candidate if there is one.

        Prefills whose KV is to be offered don't grow: they count as what they hold, as leases do.
        """
        if candidate is None and not running:
            return self._pool.held_pages
        decodes: list[SequenceState] = []
        started: list[SequenceState] = []
        for sequence in running:
            (started if is_prefill(sequence) else decodes).append(sequence)
        prefills = in_turn(started)
        match = match or Match()
        besides = self._besides(match)
        step_tokens = max(1, self._step_tokens - len(decodes))
        loads: list[Load] = []
        own_pages = ahead = 0
        for place, sequence in enumerate((*decodes, *prefills)):
            if place >= len(decodes):
                ahead += sequence.uncomputed
            if sequence.owner.lease is not None:
                continue
            own = self._held_alone(sequence, besides)
            for follower in sequence.followers:
                if follower.resumed_len:
                    own += self._held_alone(follower, besides)
                else:
                    own += len(follower.table)
            own_pages += own
            self._charge(loads, sequence, own, sequence.capacity, -(-ahead // step_tokens))
        if candidate is not None:
            own = self._wanted(candidate, match) - self._taken(match) + match.idle_pages
            if candidate.owner.adoption is None:
                here = max(self._known(match), candidate.coming)
                ahead += candidate.length - here
            capacity = -(-candidate.length // self._page_tokens) * self._page_tokens
            self._charge(loads, candidate, own, capacity, -(-ahead // step_tokens))
        shared = self._pool.held_pages - own_pages
        return peak_pages(
            loads,
            shared_pages=shared,
            page_tokens=self._page_tokens,
            entry_pages=self._growing_pages,
        )

    def _besides(self, match: Match) -> frozenset[PageId]:
        """Pages that a candidate will share with whoever has them: here one of each block."""
        return frozenset(match.pages[:: self._pool.pages_per_block])

    def _held_alone(self, sequence: SequenceState, besides: frozenset[PageId]) -> int:
        """Pages of its table that return when it ends."""
        return len(sequence.table) - self._pool.shared_pages(sequence.table, besides)

    def _known(self, match: Match) -> int:
        """Tokens of a match."""
        return len(match.pages) * self._page_tokens

    def _taken(self, match: Match) -> int:
        """Pages of a match."""
        return len(match.pages)

    def _wanted(self, candidate: SequenceState, match: Match) -> int:
        """Pages that it has when it has started, those of the match among them."""
        followers = sum(self._follower_pages(follower) for follower in candidate.followers)
        return -(-candidate.length // self._page_tokens) + followers

    def _follower_pages(self, follower: SequenceState) -> int:
        return follower_pages(
            follower,
            page_tokens=self._page_tokens,
            block_tokens=self._pool.pages_per_block * self._page_tokens,
        )

    def _charge(
        self, loads: list[Load], sequence: SequenceState, own: int, capacity: int, delay: int
    ) -> None:
        generated = sequence.outputs
        predicted = self._length(generated, sequence.owner.max_tokens)
        life = delay + predicted - generated
        slack = capacity - (sequence.length - 1)
        loads.append(Load(life, own, slack))
        if sequence.followers:
            loads += [Load(life, 0, 0)] * len(sequence.followers)
