"""The hand of a live planner: its orders, done by the supervisor and by what operators have.

AddOrder  ──► AddWorker to the supervisor ──► it joins, or NotAdded
EndOrder  ──► Operations.end: drained, then its process ends
FlipOrder ──► Operations.set_role: drained, then there in the other role
"""

import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from antiphon.core.planner import AddOrder, EndOrder, FlipOrder, MoveBook, Order
from antiphon.errors import ClientError, PeerError
from antiphon.live.admin.operations import Operations
from antiphon.live.gateway.planner_metrics import PlannerCounts
from antiphon.live.supervisor.messages import AddWorker, FromChild
from antiphon.types import Seconds

Deed: TypeAlias = Coroutine[Any, Any, None]
Spawn: TypeAlias = Callable[[Deed], object]
_log = logging.getLogger(__name__)


class Hand:
    """Carries out orders, and says in `book` which are over. It decides nothing, and nothing here
    waits: what takes long is given to `spawn`.
    """

    def __init__(
        self,
        operations: Operations,
        book: MoveBook,
        tell: Callable[[FromChild], None],
        counts: PlannerCounts,
        *,
        drain_s: Seconds,
    ) -> None:
        self._operations = operations
        self._book = book
        self._tell = tell
        self._counts = counts
        self._drain_s = drain_s

    def carry_out(self, orders: Iterable[Order], spawn: Spawn) -> None:
        """Begin all of them."""
        for order in orders:
            match order:
                case AddOrder(number, worker, role):
                    self._counts.moves["add", role] += 1
                    self._tell(AddWorker(worker, role, number))
                case EndOrder(_, _, role):
                    self._counts.moves["take", role] += 1
                    spawn(self._end(order))
                case FlipOrder(_, _, role):
                    self._counts.moves["flip", role] += 1
                    spawn(self._flip(order))

    async def _end(self, order: EndOrder) -> None:
        try:
            await self._operations.end(order.worker, self._drain_s)
        except (ClientError, PeerError) as error:
            _log.info("%s was not ended: %s", order.worker, error)
        finally:
            self._book.over(order.number)

    async def _flip(self, order: FlipOrder) -> None:
        worker, to = order.worker, order.to
        try:
            await self._operations.set_role(worker, to, self._drain_s, pinned=False)
        except (ClientError, PeerError) as error:
            _log.info("%s has not become a %s worker: %s", worker, to, error)
        finally:
            self._book.over(order.number)
