"""From computed pages to an offer: checksums take time, so they are made beside the event loop.

The pages are held until then, even if the lease ends meanwhile: nobody else may write to a page
that is being sealed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from antiphon.core.handover import LeaseBook
from antiphon.types import (
    NO_PAGE,
    AttemptFailed,
    Event,
    Offer,
    OfferedPage,
    OfferedSequence,
    Prefilled,
    RequestId,
    WorkerInfo,
)

from .pull_path import SealedPages

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Seal:
    prefilled: Prefilled
    sequences: dict[int, OfferedSequence]
    """Those that nobody has ended meanwhile."""


class Sealing:
    """Makes one `Offer` of each `Prefilled`, or gives the attempt up.

    `on_made` gets the events: none if all was aborted, which is done here until then. `on_broken`
    is called if a law was broken meanwhile.
    """

    def __init__(
        self,
        pages: SealedPages,
        leases: LeaseBook,
        info: Callable[[], WorkerInfo],
        threads: Executor,
        *,
        on_made: Callable[[Sequence[Event]], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._pages = pages
        self._leases = leases
        self._info = info
        self._threads = threads
        self._on_made = on_made
        self._on_broken = on_broken
        self._seals: dict[tuple[RequestId, int], _Seal] = {}
        self._tasks: set[asyncio.Task[list[Event]]] = set()

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._tasks)

    def begin(self, prefilled: Prefilled) -> None:
        """Seal the pages; they are under the lease since this very turn of the event loop."""
        seal = _Seal(prefilled, {one.sequence: one for one in prefilled.sequences})
        self._seals[prefilled.request, prefilled.attempt] = seal
        self._leases.hold(prefilled.lease)
        task = asyncio.get_running_loop().create_task(self._make(seal), name="seal")
        self._tasks.add(task)
        task.add_done_callback(self._made)

    def abort(
        self, request: RequestId, attempt: int, sequence: int | None
    ) -> tuple[int, ...] | None:
        """End one sequence or all of a request that is being sealed; None: it is not, or has not.

        What is left without a sequence is not offered.
        """
        seal = self._seals.get((request, attempt))
        if seal is None or (sequence is not None and sequence not in seal.sequences):
            return None
        ended = tuple(seal.sequences) if sequence is None else (sequence,)
        for one in ended:
            del seal.sequences[one]
        if not seal.sequences:
            self._drop(seal)
        return ended

    def abort_all(self) -> list[Prefilled]:
        """End everything that is being sealed; returns what."""
        ended = [seal.prefilled for seal in self._seals.values()]
        for seal in list(self._seals.values()):
            self._drop(seal)
        return ended

    async def close(self) -> None:
        """Wait until no page is read any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _drop(self, seal: _Seal) -> None:
        prefilled = seal.prefilled
        del self._seals[prefilled.request, prefilled.attempt]
        self._leases.release_of(prefilled.request, prefilled.attempt)

    def _made(self, task: asyncio.Task[list[Event]]) -> None:
        self._tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self._on_made(task.result())
        else:
            self._on_broken(error)

    async def _make(self, seal: _Seal) -> list[Event]:
        prefilled, info = seal.prefilled, self._info()
        numbers = dict.fromkeys(
            page for one in prefilled.sequences for page in one.table if page != NO_PAGE
        )
        loop = asyncio.get_running_loop()
        failure, pages = "", ()
        try:
            pages = await loop.run_in_executor(self._threads, self._pages.seal, tuple(numbers))
        except Exception as error:  # noqa: BLE001  whatever fails, pages and request must not leak
            _log.error("pages of %s can't be sealed", prefilled.request, exc_info=error)
            failure = "its pages can't be sealed"
        lives = self._leases.let_go(prefilled.lease)
        if self._seals.get((prefilled.request, prefilled.attempt)) is not seal:
            return []
        del self._seals[prefilled.request, prefilled.attempt]
        if failure or not lives:
            self._leases.release_of(prefilled.request, prefilled.attempt)
            return [
                AttemptFailed(
                    request=prefilled.request,
                    attempt=prefilled.attempt,
                    message=failure or "its lease ran out before it was offered",
                )
            ]
        return [self._offer(seal, pages, info)]

    def _offer(self, seal: _Seal, pages: tuple[OfferedPage, ...], info: WorkerInfo) -> Offer:
        prefilled, kv = seal.prefilled, info.kv
        assert kv is not None
        used = {page for one in seal.sequences.values() for page in one.table}
        return Offer(
            request=prefilled.request,
            attempt=prefilled.attempt,
            lease=prefilled.lease,
            ttl_s=self._leases.ttl_s,
            owner=info.id,
            incarnation=info.incarnation,
            kv=kv,
            numerics=info.model.numerics,
            pages=tuple(page for page in pages if page.page in used),
            sequences=tuple(seal.sequences.values()),
            at=info.at,
        )
