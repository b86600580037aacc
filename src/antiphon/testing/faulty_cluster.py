"""Faulty parts of a cluster: each breaks one promise, and a law has to find it.

They are put in at construction; nothing in the product can be switched off.
"""

from collections.abc import Sequence
from dataclasses import replace

from antiphon.core.handover import LeaseBook
from antiphon.core.requests import RequestBook
from antiphon.core.requests.dispatcher import Dispatcher
from antiphon.core.requests.facts import DropReason, Fact, why_unusable
from antiphon.core.requests.open_request import OpenRequest
from antiphon.core.requests.parts import Parts as BookParts
from antiphon.core.requests.routing import Routing
from antiphon.core.router import PrefixIndex
from antiphon.core.router.kv_feed import KvFeed
from antiphon.core.scheduler import STANDARD_PARTS
from antiphon.sim import STANDARD_WORKER_PARTS, StoreSide, WorkerParts
from antiphon.sim.page_taker import PageTaker
from antiphon.sim.shadow_kv import PageContent, PageCopy
from antiphon.types import (
    Command,
    Incarnation,
    KvEvents,
    KvReplay,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    OfferedPage,
    PageId,
    Request,
    Seconds,
    TokenGenerated,
    TokensGenerated,
)


class Unfenced(PageTaker):
    """Takes what lies in a page for what was offered: generations and checksums are ignored."""

    def take_page(self, copied: PageCopy, source: OfferedPage) -> PageContent | None:
        """Never notices that a page was used anew."""
        return copied.content


class ForgetsRelease(LeaseBook):
    """An acknowledged lease keeps its pages: nobody gives the references back."""

    def acknowledge(
        self, lease: LeaseId, taker: Incarnation, attempt: int, now: Seconds
    ) -> LeaseHeld | LeaseRefused:
        """Ends the lease, but for its pages."""
        keep, self._drop = self._drop, _keep
        try:
            return super().acknowledge(lease, taker, attempt, now)
        finally:
            self._drop = keep


def _keep(references: Sequence[PageId]) -> None:
    """Gives nothing back."""


class TakesAnybody(LeaseBook):
    """Does not check who takes or acknowledges: whoever was replaced still may."""

    def take(
        self, lease: LeaseId, taker: Incarnation, attempt: int, now: Seconds
    ) -> LeaseHeld | LeaseRefused:
        """As if it had been granted to whoever asks."""
        self._believe(lease, taker, attempt)
        return super().take(lease, taker, attempt, now)

    def acknowledge(
        self, lease: LeaseId, taker: Incarnation, attempt: int, now: Seconds
    ) -> LeaseHeld | LeaseRefused:
        """As if it had been granted to whoever asks."""
        self._believe(lease, taker, attempt)
        return super().acknowledge(lease, taker, attempt, now)

    def _believe(self, lease: LeaseId, taker: Incarnation, attempt: int) -> None:
        one = self._leases.get(lease)
        if one is not None:
            one.taker, one.attempt = taker, attempt


def ignores_attempts(entry: OpenRequest, fact: Fact) -> DropReason | None:
    """Takes a fact of any attempt for one of the present attempt, and repeated tokens for new."""
    attempt = entry.request.attempt
    return why_unusable(entry, replace(fact, attempt=attempt))


def takes_repeats(entry: OpenRequest, fact: Fact) -> DropReason | None:
    """Takes a repeated token for a new one."""
    reason = why_unusable(entry, fact)
    is_token = isinstance(fact, TokenGenerated | TokensGenerated)
    return None if is_token and reason is DropReason.DUPLICATE else reason


class ForgetsCancel(Dispatcher):
    """Whoever has a request that ended is not told."""

    def stop(self, entry: OpenRequest, sequence: int | None = None) -> list[Command]:
        """Nobody."""
        return []


class BelievesStore(StoreSide):
    """Takes whatever came out of the store for what was put."""

    def is_good(self, copy: PageCopy, promised: OfferedPage) -> bool:
        """Always."""
        return True


class LosesResumePoint(OpenRequest):
    """The next attempt is not told what was delivered: it begins at the beginning."""

    def resumed(self) -> Request:
        """Without the tokens that the client has."""
        return replace(super().resumed(), resumed=())


def book_that_ignores_attempts(router: Routing) -> RequestBook:
    """A request book without the fence between attempts."""
    return RequestBook(router, parts=BookParts(why_unusable=ignores_attempts))


def book_that_takes_repeats(router: Routing) -> RequestBook:
    """A request book that delivers what comes twice twice."""
    return RequestBook(router, parts=BookParts(why_unusable=takes_repeats))


def book_that_forgets_cancels(router: Routing) -> RequestBook:
    """A request book that never takes anything back from a worker."""
    return RequestBook(router, parts=BookParts(dispatcher=ForgetsCancel))


def book_that_loses_resume_points(router: Routing) -> RequestBook:
    """A request book whose failovers start from scratch."""
    return RequestBook(router, parts=BookParts(open_request=LosesResumePoint))


def workers_with(leases: type[LeaseBook]) -> WorkerParts:
    """Workers whose scheduler has another lease book."""
    return replace(STANDARD_WORKER_PARTS, scheduler=replace(STANDARD_PARTS, lease_book=leases))


class _NeverAsks(KvFeed):
    def events(self, message: KvEvents, now: Seconds) -> KvReplay | None:
        """Waits for what is missing."""
        super().events(message, now)
        return None


def index_that_never_asks() -> PrefixIndex:
    """A router's index that does not ask for what was lost."""
    return PrefixIndex(feed=_NeverAsks)
