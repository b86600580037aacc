"""From a planner's moves to orders for single workers, and what became of each: the hand's rules.

                 ┌─ look ◄── who is there ──────────┐
    moves ──► carry_out ──► AddOrder  ──► driver ──┬─┴► it serves            ─┐
                            EndOrder               ├─► over                   ├─► settled, once
                            FlipOrder              └─► not_added, with a why ─┘

The live server and the virtual fleet drive the same book. Laws, whatever the order of answers and
deaths: no order makes more devices than the budget; no order takes the last worker that serves in
its role, nor one that drains, does not serve or is an operator's own; each order settles once.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from antiphon.core.restart_backoff import RestartBackoff
from antiphon.types import Role, Seconds, WorkerId, WorkerView

from .decision import Add, Flip, Move, Take
from .order import AddOrder, EndOrder, FlipOrder, Order
from .present_worker import PresentWorker
from .seniority import Seniority
from .steered_worker import SteeredWorker, to_leave

_RETRY_S: Seconds = 30.0
"""So long after a worker could not be added nobody is asked for; twice as long after the next."""
_MOST_STARTS = 16
"""Of starts that nobody asked about: the newest are kept."""

Present = Mapping[WorkerId, PresentWorker]
Steered = dict[WorkerId, SteeredWorker]


@dataclass(slots=True)
class _Open:
    """An order that is not settled. `seen`: the worker that was to be added is there."""

    order: Order
    at: Seconds
    seen: bool = False


def first_free_name(role: Role, taken: Collection[WorkerId]) -> WorkerId:
    """`role-0`, or the next number that nobody has."""
    names = (WorkerId(f"{role}-{number}") for number in range(len(taken) + 1))
    return next(name for name in names if name not in taken)


class MoveBook:
    """The orders of one planner. Time is told; a worker has one open order at most.

    There are never more devices than `budget`, whoever has started their workers: also those that
    an operator drained, or gave a role that the planner does not count. `devices`: of one worker of
    each role; 1 where nothing is said. `name`: of a worker of that role, beside those taken.
    """

    def __init__(
        self,
        budget: int,
        *,
        devices: Mapping[Role, int] | None = None,
        name: Callable[[Role, Collection[WorkerId]], WorkerId] = first_free_name,
    ) -> None:
        self._budget, self._devices, self._name = budget, devices or {}, name
        self._open: dict[WorkerId, _Open] = {}
        self._seniority = Seniority()
        self._orders = 0
        self._starts_s: list[Seconds] = []
        self._backoff = RestartBackoff(_RETRY_S)
        self._not_before: Seconds | None = None
        self._why = ""
        self._failed: AddOrder | None = None
        """The newest one of which nothing came."""
        self._at_budget = False
        """The newest moves add a worker for which there is no budget."""
        self.failed_adds = 0
        self.ready_s: Seconds | None = None
        """How long the last worker that was added took until it served; None: there was none."""

    @property
    def open_orders(self) -> tuple[Order, ...]:
        """Those that are not settled, in the order in which they were given."""
        return tuple(sorted((one.order for one in self._open.values()), key=_number))

    def withheld(self, now: Seconds) -> str:
        """Why no worker is added at present; "": one that is wanted would be.

        That the budget is taken is said if the newest moves wanted more.
        """
        if self._not_before is None or now >= self._not_before:
            return f"the budget of {self._budget} is taken" if self._at_budget else ""
        return f"{self._why}; tried again in {self._not_before - now:.0f} s"

    def starts_s(self) -> tuple[Seconds, ...]:
        """How long workers that serve now took, from the order on, since this was last asked.
        Mutates."""
        starts, self._starts_s = tuple(self._starts_s), []
        return starts

    # ── facts ────────────────────────────────────────────────────────────────────────────────

    def look(self, present: Present, now: Seconds) -> Steered:
        """All workers, by id in order: those that are there and those that are only asked for, as
        the planner is to see them. Mutates: who serves is added, and it remembers since when.
        """
        for id, one in list(self._open.items()):
            if isinstance(one.order, AddOrder):
                self._look_at_added(id, one, one.order, present.get(id), now)
        asked = {id: one for id, one in self._open.items() if isinstance(one.order, AddOrder)}
        ids = sorted(present.keys() | asked)
        self._seniority.keep(ids)
        return {id: self._steered(id, present.get(id), now) for id in ids}

    def not_added(self, number: int, why: str, now: Seconds) -> None:
        """Nothing came, and will, of the worker that this order was to add. Mutates.

        Of an order that is settled only the reason is new, if it was the last that failed.
        """
        found = next((one for one in self._open.values() if one.order.number == number), None)
        if found is not None and isinstance(found.order, AddOrder):
            self._fail(found.order, why, now)
        elif self._failed is not None and self._failed.number == number:
            self._why = f"{self._failed.worker} could not be added: {why}"

    def over(self, number: int) -> bool:
        """What was begun with that worker is done, or was given up. Mutates. Whether it was open:
        said again, or of an order that is none of an end or a flip, it changes nothing."""
        for id, one in self._open.items():
            if one.order.number == number and not isinstance(one.order, AddOrder):
                del self._open[id]
                return True
        return False

    def _look_at_added(
        self, id: WorkerId, one: _Open, order: AddOrder, there: PresentWorker | None, now: Seconds
    ) -> None:
        if there is None:
            if one.seen:
                self._fail(order, "its process is gone", now)
            return
        one.seen = True
        if there.view is not None:
            del self._open[id]
            self.ready_s = now - one.at
            self._starts_s = [*self._starts_s, self.ready_s][-_MOST_STARTS:]
            self._backoff, self._not_before, self._failed = RestartBackoff(_RETRY_S), None, None

    def _fail(self, order: AddOrder, why: str, now: Seconds) -> None:
        del self._open[order.worker]
        self.failed_adds += 1
        self._failed, self._why = order, f"{order.worker} could not be added: {why}"
        if self._not_before is None or now >= self._not_before:
            self._not_before = now + self._backoff.died(None, now)

    def _steered(self, id: WorkerId, one: PresentWorker | None, now: Seconds) -> SteeredWorker:
        opened = self._open.get(id)
        if one is None:
            assert opened is not None
            return self._asked(opened.order, opened.at, now)
        order = None if opened is None else opened.order
        first, devices = now, one.devices
        match order:
            case AddOrder() if opened is not None:
                first = opened.at
            case FlipOrder(to=to):
                devices = max(devices, self._devices.get(to, 1))
            case _:
                pass
        return SteeredWorker(
            role=one.role,
            since=self._seniority.since(id, first) if one.since is None else one.since,
            ready_at=self._seniority.serves_since(id, one, now),
            devices=devices,
            pinned=one.pinned,
            draining=one.drained or isinstance(order, EndOrder | FlipOrder),
            becomes=order.to if isinstance(order, FlipOrder) else None,
        )

    def _asked(self, order: Order, at: Seconds, now: Seconds) -> SteeredWorker:
        role = order.role
        return SteeredWorker(
            role=role,
            since=self._seniority.since(order.worker, at),
            ready_at=now,
            devices=self._devices.get(role, 1),
        )

    # ── orders ───────────────────────────────────────────────────────────────────────────────

    def carry_out(self, moves: Iterable[Move], present: Present, now: Seconds) -> list[Order]:
        """What is to be done now for these moves; each order is open from now on. Mutates."""
        crew = self.look(present, now)
        views = {id: one.view for id, one in present.items() if one.view is not None}
        self._at_budget = False
        orders: list[Order] = []
        for move in moves:
            match move:
                case Add(role, workers):
                    orders += self._adds(role, workers, crew, now)
                case Take() | Flip():
                    orders += self._leave(move, crew, views, now)
        return orders

    def _adds(self, role: Role, workers: int, crew: Steered, now: Seconds) -> list[Order]:
        orders: list[Order] = []
        for _ in range(workers):
            if not self._fits(self._devices.get(role, 1), crew):
                self._at_budget = True
                break
            if self._not_before is not None and now < self._not_before:
                break
            taken = crew.keys() | self._open.keys()
            order = AddOrder(self._next_number(), self._name(role, taken), role)
            self._open[order.worker] = _Open(order, now)
            crew[order.worker] = self._asked(order, now, now)
            orders.append(order)
        return orders

    def _leave(
        self,
        move: Take | Flip,
        crew: Steered,
        views: Mapping[WorkerId, WorkerView],
        now: Seconds,
    ) -> list[Order]:
        orders: list[Order] = []
        for id in _who_may_leave(move.role, move.workers, crew, views):
            order, one = EndOrder(self._next_number(), id, move.role), crew[id]
            if isinstance(move, Flip):
                needs = self._devices.get(move.to, 1)
                if not self._fits(needs - one.devices, crew):
                    break
                order = FlipOrder(order.number, id, move.role, move.to)
                one.becomes, one.devices = move.to, max(one.devices, needs)
            self._open[id] = _Open(order, now)
            one.draining = True
            orders.append(order)
        return orders

    def _next_number(self) -> int:
        self._orders += 1
        return self._orders

    def _fits(self, more: int, crew: Steered) -> bool:
        """A flip that does not grow a worker always does."""
        return more <= 0 or sum(one.devices for one in crew.values()) + more <= self._budget


def _number(order: Order) -> int:
    return order.number


def _who_may_leave(
    role: Role, workers: int, crew: Steered, views: Mapping[WorkerId, WorkerView]
) -> list[WorkerId]:
    """As `to_leave` says, but for the last one that serves in the role."""
    serving = Counter(one.role for id, one in crew.items() if id in views and not one.draining)
    return to_leave(crew, views, role, min(workers, max(0, serving[role] - 1)))
