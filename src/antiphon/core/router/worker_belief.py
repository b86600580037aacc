"""What a router believes of one worker: its last report, and its own decisions since then.

A report is old when it comes: what was sent to the worker meanwhile is not in it. Whoever trusts
reports alone sends a burst to one worker; whoever adds all decisions counts twice. Here the two
are matched by counting: the gateway knows n requests that this worker has, the report speaks of
m, so the newest n - m are not in it yet and are added to what it says. Between reports nothing is
taken off but what is known to be over, so a worker that is stuck never looks idle.
"""

from functools import lru_cache
from typing import NamedTuple

from antiphon.core.costs import PhaseTime, occupied_s
from antiphon.types import (
    Health,
    KvShape,
    RequestId,
    Role,
    Seconds,
    WorkerInfo,
    WorkerView,
)

from .demand import Demand
from .pace import Pace
from .placement import Phase, Placement
from .worker_kind import WorkerKind, kind_of


class Exchange(NamedTuple):
    """What two workers must have equal to read each other's pages: numerics id, and shape of KV,
    but for the number of pages. A tuple, since it is compared for each worker and decision."""

    numerics: str
    layout: str
    page_tokens: int
    block_tokens: int
    page_bytes: int


class Load(NamedTuple):
    """What a worker has to do, from its report and what the report could not know."""

    requests: int
    """That it has, or is to decode; 0 only if its last report speaks of none either."""
    waiting: int
    """Of those, the ones that do not run yet."""
    queued_tokens: int
    queued_s: Seconds
    """Prompt tokens that are still to be computed, and their time at the model's pace."""
    sequences: int
    decoding: int
    """Sequences that decode here sooner or later, and those that do now."""
    context_tokens: int
    pages: int
    """Predicted peak of all that it has."""
    handover_pages: int
    """Offered, or of prompts that will be offered."""
    roomless: int
    """Requests that wait for room to decode here, by the last report: no part of `pages`."""


class WorkerBelief:
    """One life of a worker. `chosen` is the number of the last decision for it, 0 before that."""

    def __init__(self, info: WorkerInfo, times: PhaseTime) -> None:
        self.info = info
        self.role: Role = info.role
        self.health = Health.JOINED
        self.exchange = exchange_of(info.model.numerics, info.kv) if info.kv else None
        """Workers with equal values can read each other's pages; None: it exchanges no KV."""
        self.kind = self._kind(info.kv.pages if info.kv else None)
        self.pace = Pace(times)
        self.chosen = 0
        self.closed_until: Seconds | None = None
        self._times = times
        self._view: WorkerView | None = None
        self._here: dict[RequestId, Placement] = {}
        self._coming: dict[RequestId, Placement] = {}
        self._foreign_requests = self._foreign_sequences = self._foreign_tokens = 0
        self._gone_pages = self._gone_context = self._just_offered_pages = 0
        self._load: Load | None = None
        self._pace_then = 0.0
        """The pace's factor at the last report."""

    @property
    def total_pages(self) -> int | None:
        """Pages of its KV memory; None: not known yet."""
        return self.kind.total_pages

    @property
    def idle(self) -> bool:
        """Nothing that was sent there is left."""
        return not self._here and not self._coming

    @property
    def load(self) -> Load:
        """Present load. Computed when asked after a change, so that nothing adds up to drift."""
        if self._load is None:
            self._load = self._compute()
        return self._load

    def pages_of(self, demand: Demand) -> int | None:
        """Pages that the request fills here if none of them is given back: as whatever is offered.

        None: page size not known.
        """
        return demand.needs(self.kind).pages

    def running_pages_of(self, demand: Demand) -> int | None:
        """Pages that it fills here as it runs: of sliding windows, what they span; but what changes
        hands is offered and taken whole.

        None: page size not known.
        """
        groups = self.kind.groups
        if groups is None or demand.sequences != 1 or self.role is not Role.MIXED:
            return self.pages_of(demand)
        return groups.most_pages(demand.longest, step_tokens=1)

    # ── what happens to it ───────────────────────────────────────────────────────────────────

    def reported(self, view: WorkerView, now: Seconds) -> bool:
        """Take in a report. Mutates this and the placements here. False: it is as good as before.

        A worker that has nothing to do says the same again and again: of thousands most do.
        """
        if self._says_the_same(view):
            before, self._pace_then = self._pace_then, self.pace.factor
            return before != self.pace.factor
        self._view, self._load = view, None
        if view.total_pages != self.kind.total_pages:
            self.kind = self._kind(view.total_pages)
        self.pace.reported(view, now)
        self._gone_pages = self._gone_context = self._just_offered_pages = 0
        known = list(self._here.values())
        counted = view.running + view.waiting + view.pulling
        for number, placement in enumerate(known):
            placement.seen = number < counted
        # First come, first served: what is left belongs to the newest.
        left = view.waiting_tokens
        for placement in reversed(known):
            if placement.seen and placement.phase in (Phase.PREFILL, Phase.WHOLE):
                share = min(placement.counted, left)
                placement.left = min(placement.uncached, share)
                left -= share
        self._foreign_tokens = left
        ours = sum(placement.demand.sequences for placement in known if placement.seen)
        self._foreign_sequences = max(0, view.running_sequences - ours)
        self._foreign_requests = max(0, counted - len(known))
        self._pace_then = self.pace.factor
        return True

    def _says_the_same(self, view: WorkerView) -> bool:
        """And nothing was sent there, or left it, since then."""
        before = self._view
        if before is None or self._here or view.steps_total != before.steps_total:
            return False
        if self._gone_pages or self._gone_context or self._just_offered_pages:
            return False
        return view == before

    def put(self, placement: Placement) -> None:
        """The request was sent here. Mutates."""
        self._here[placement.demand.request] = placement
        self._load = None

    def expect(self, placement: Placement) -> None:
        """The request is to be decoded here, and is somewhere else yet. Mutates."""
        self._coming[placement.demand.request] = placement
        self._load = None

    def drop(self, placement: Placement) -> None:
        """The request is not here (any more), or not expected. Mutates."""
        request = placement.demand.request
        self._load = None
        self._coming.pop(request, None)
        if self._here.pop(request, None) is None or not placement.seen:
            return
        self._gone_context += placement.demand.context
        if placement.phase is not Phase.PREFILL:
            self._gone_pages += self.running_pages_of(placement.demand) or 0

    def offered(self, placement: Placement) -> None:
        """The request's prompt is computed; its pages wait here for their taker. Mutates."""
        self.drop(placement)
        self._just_offered_pages += self.pages_of(placement.demand) or 0

    def touched(self) -> None:
        """A placement here has changed. Mutates."""
        self._load = None

    def placements(self) -> list[Placement]:
        """All that are here or expected. Does not mutate."""
        return [*self._here.values(), *self._coming.values()]

    # ── sums ─────────────────────────────────────────────────────────────────────────────────

    def _compute(self) -> Load:
        sequences = decoding = self._foreign_sequences
        waiting = tokens = context = pages = handover = 0
        queued_s = 0.0
        for placement in self._here.values():
            demand, fresh = placement.demand, not placement.seen
            if placement.phase is Phase.DECODE and not fresh:  # most are: nothing is left
                sequences += demand.sequences
                decoding += demand.sequences
                continue
            tokens += placement.left
            queued_s += placement.queued_s
            waiting += fresh
            if placement.phase is Phase.PREFILL:
                handover += self.pages_of(demand) or 0
                continue
            sequences += demand.sequences
            decoding += demand.sequences if placement.phase is Phase.DECODE else 0
            context += demand.context if fresh else placement.left
            pages += (self.running_pages_of(demand) or 0) if fresh else self._pages(placement.left)
        for placement in self._coming.values():
            sequences += placement.demand.sequences
            context += placement.demand.context
            pages += self.running_pages_of(placement.demand) or 0
        tokens += self._foreign_tokens
        if self._foreign_tokens:
            queued_s += occupied_s(self._times, self._foreign_tokens)
        view = self._view
        if view is not None:
            waiting += view.waiting + view.pulling
            context += max(0, view.context_tokens - self._gone_context)
            pages += max(0, max(view.peak_pages, view.held_pages) - self._gone_pages)
            handover += view.offered_pages
        return Load(
            requests=len(self._here) + len(self._coming) + self._foreign_requests,
            waiting=waiting,
            queued_tokens=tokens,
            queued_s=queued_s,
            sequences=sequences,
            decoding=decoding,
            context_tokens=context,
            pages=pages,
            handover_pages=handover + self._just_offered_pages,
            roomless=0 if view is None else view.roomless,
        )

    def _pages(self, tokens: int) -> int:
        groups, kv = self.kind.groups, self.info.kv
        if groups is not None:
            return groups.most_pages(tokens, step_tokens=1)
        return -(-tokens // kv.page_tokens) if kv else 0

    def _kind(self, total_pages: int | None) -> WorkerKind:
        info = self.info
        return kind_of(info.max_model_len, info.kv, total_pages, info.model.kv_groups)


@lru_cache(maxsize=256)
def exchange_of(numerics: str, kv: KvShape) -> Exchange:
    """What two workers must have equal; the number of pages is each one's own.

    Equal ones are mostly one object: they are compared for each worker and decision.
    """
    return Exchange(numerics, kv.layout, kv.page_tokens, kv.block_tokens, kv.page_bytes)
