"""Carries the book's orders to workers, and their answers back to the book.

Each call is a task of its own, begun in the order of the orders: a link promises that calls take
effect in the order in which they begin. A worker that leaves a call unanswered is lost; an
exception that no peer may cause is the gateway's failure.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeAlias

from antiphon.errors import PeerError
from antiphon.live.worker_link import WorkerLink
from antiphon.types import (
    Abort,
    Admitted,
    Adopt,
    Dispatch,
    Grant,
    GrantAnswered,
    LeaseRefused,
    Rejected,
    Release,
    Renew,
    Request,
    WorkerId,
    WorkerInfo,
)

from .fleet import Fleet

Order: TypeAlias = Dispatch | Adopt | Grant | Renew | Release | Abort


class Courier:
    """`on_answer` gets what which worker said to an order; `on_failure` a broken law."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        on_answer: Callable[[WorkerInfo, Admitted | Rejected | GrantAnswered], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._fleet = fleet
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def carry(self, order: Order) -> None:
        """Begin to do it. To a worker that is not there: nothing, the book knows or will hear."""
        link = self._fleet.link(_receiver(order))
        if link is None or self._closed:
            return
        match order:
            case Dispatch(request, _, stage, fetch):
                call = link.add(request, stage, fetch)
                self._begin(link, self._hand_over(link, request, call))
            case Adopt(request=request, offer=offer):
                self._begin(link, self._hand_over(link, request, link.adopt(request, offer)))
            case Grant():
                self._begin(link, self._grant(link, order))
            case Renew(leases=leases):
                self._begin(link, link.renew(leases))
            case Release(lease=lease):
                self._begin(link, link.release(lease))
            case Abort(request, attempt, _, sequence):
                self._begin(link, link.abort(request, attempt, sequence))

    def close(self) -> None:
        """Carry nothing more."""
        self._closed = True

    async def _hand_over(
        self,
        link: WorkerLink,
        request: Request,
        call: Coroutine[Any, Any, Admitted | Rejected],
    ) -> None:
        answer = await call
        if self._fleet.link(link.info.id) is link:
            self._on_answer(link.info, replace(answer, attempt=request.attempt))

    async def _grant(self, link: WorkerLink, order: Grant) -> None:
        taker = self._fleet.link(order.taker)
        if taker is None:
            return  # it was lost since: the book has chosen another one
        answer = await link.grant(order.lease, taker.info.incarnation, order.attempt)
        self._on_answer(
            link.info,
            GrantAnswered(
                request=order.request,
                attempt=order.attempt,
                lease=order.lease,
                refused=answer.reason if isinstance(answer, LeaseRefused) else None,
            ),
        )

    def _begin(self, link: WorkerLink, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(self._do(link, work))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def _do(self, link: WorkerLink, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except PeerError as error:
            self._fleet.lose(link, f"a call was not answered: {error}")

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_failure(error)


def _receiver(order: Order) -> WorkerId:
    match order:
        case Dispatch() | Adopt() | Abort():
            return order.worker
        case Grant() | Renew() | Release():
            return order.owner
