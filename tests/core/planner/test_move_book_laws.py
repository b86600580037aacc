"""A planner's orders, whatever its moves, and in whatever order answers and deaths come."""

from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from planner_kit import IDLE_VIEW

from antiphon.core.planner import (
    Add,
    AddOrder,
    EndOrder,
    Flip,
    FlipOrder,
    Move,
    MoveBook,
    Order,
    PresentWorker,
    Take,
    move_book,
    to_leave,
)
from antiphon.types import Role, WorkerId

PREFILL, DECODE, MIXED = Role.PREFILL, Role.DECODE, Role.MIXED
DEVICES = {PREFILL: 2, DECODE: 1, MIXED: 1}
BUDGET = 8
ROLES = st.sampled_from([PREFILL, DECODE, MIXED])
COUNTS = st.integers(1, 4)
MOVES = st.lists(
    st.one_of(
        st.builds(Add, ROLES, COUNTS),
        st.builds(Take, ROLES, COUNTS),
        st.builds(Flip, ROLES, ROLES, COUNTS).filter(lambda one: one.role is not one.to),
    ),
    min_size=1,
    max_size=3,
)
ANY = st.integers(0, 10**6)
"""Picks one of however many there are."""


class Orders(RuleBasedStateMachine):
    """The machine is a driver: it does what is ordered, late, never, or not at all."""

    kind: type[MoveBook] = MoveBook

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.book = self.kind(BUDGET, devices=DEVICES)
        self.present: dict[WorkerId, PresentWorker] = {
            WorkerId(f"{role}-0"): serving(role) for role in (PREFILL, DECODE)
        }
        self.given: dict[int, Order] = {}
        self.settled: set[int] = set()

    def open(self, *kinds: type[Order]) -> list[Order]:
        return [one for one in self.book.open_orders if isinstance(one, kinds)]

    def serving(self, role: Role) -> list[WorkerId]:
        """Who serves in that role and is to go on with it."""
        leaving = {one.worker for one in self.open(EndOrder, FlipOrder)}
        return [
            id
            for id, one in self.present.items()
            if one.role is role and one.view and not one.drained and id not in leaving
        ]

    def look(self) -> None:
        self.book.look(self.present, self.now)

    # ── the planner ──────────────────────────────────────────────────────────────────────────

    @rule(moves=MOVES)
    def decide(self, moves: list[Move]) -> None:
        self.look()
        before = dict(self.present)
        busy = {one.worker for one in self.book.open_orders}
        orders = self.book.carry_out(moves, self.present, self.now)
        assert self.present == before
        for order in orders:
            assert order.number not in self.given, "a number is an order's own"
            assert order.worker not in busy, "one order a worker"
            busy.add(order.worker)
            self.given[order.number] = order
            if isinstance(order, AddOrder):
                assert order.worker not in self.present
                continue
            one = self.present[order.worker]
            assert one.view
            assert not one.drained
            assert not one.pinned, "an operator's own"
            assert one.role is order.role
            assert self.serving(order.role), "the last one that serves in its role"
        if any(DEVICES[order.role] > 0 for order in orders if isinstance(order, AddOrder)):
            assert self.devices() <= BUDGET
        assert set(orders) <= set(self.book.open_orders)

    def devices(self) -> int:
        """All that is there or asked for; a flip has what it will have."""
        ids = self.present.keys() | {one.worker for one in self.open(AddOrder)}
        flips = {one.worker: one.to for one in self.open(FlipOrder) if isinstance(one, FlipOrder)}
        roles = {one.worker: one.role for one in self.open(AddOrder)}
        roles |= {id: one.role for id, one in self.present.items()}
        return sum(max(DEVICES[roles[id]], DEVICES[flips.get(id, roles[id])]) for id in ids)

    # ── workers that are added ───────────────────────────────────────────────────────────────

    def asked(self) -> list[Order]:
        return [one for one in self.open(AddOrder) if one.worker not in self.present]

    @precondition(lambda self: self.asked())
    @rule(which=ANY)
    def starts(self, which: int) -> None:
        order = picked(self.asked(), which)
        self.present[order.worker] = PresentWorker(
            role=order.role, devices=DEVICES[order.role], life="1"
        )

    @precondition(lambda self: self.asked())
    @rule(which=ANY)
    def is_refused(self, which: int) -> None:
        order = picked(self.asked(), which)
        self.book.not_added(order.number, "no room", self.now)
        assert order not in self.book.open_orders
        assert "no room" in self.book.withheld(self.now)

    @rule(which=ANY)
    def serves(self, which: int) -> None:
        id = picked(sorted(self.present), which)
        self.present[id] = replace(self.present[id], view=IDLE_VIEW)

    @rule(which=ANY, looked=st.booleans(), told=st.booleans())
    def dies_at_its_start(self, which: int, looked: bool, told: bool) -> None:
        """What is said of it comes before or after it is seen to be gone, or not at all."""
        self.look()
        starting = [one for one in self.open(AddOrder) if one.worker in self.present]
        if not starting:
            return
        order = picked(starting, which)
        del self.present[order.worker]
        if looked or not told:
            self.look()
        if told:
            self.book.not_added(order.number, "exit code 1", self.now)
            assert "exit code 1" in self.book.withheld(self.now)
        assert order not in self.book.open_orders

    # ── workers that leave ───────────────────────────────────────────────────────────────────

    @precondition(lambda self: self.open(EndOrder, FlipOrder))
    @rule(which=ANY, done=st.booleans())
    def is_over(self, which: int, done: bool) -> None:
        order = picked(self.open(EndOrder, FlipOrder), which)
        if done and order.worker in self.present:
            one = self.present.pop(order.worker)
            if isinstance(order, FlipOrder):
                self.present[order.worker] = replace(one, role=order.to, devices=DEVICES[order.to])
        assert self.book.over(order.number)

    @precondition(lambda self: self.given)
    @rule(which=ANY)
    def is_said_again(self, which: int) -> None:
        """Answers to orders that are settled change nothing."""
        number = picked(sorted(self.given), which)
        if number in {one.number for one in self.book.open_orders}:
            return
        before, failed = self.book.open_orders, self.book.failed_adds
        assert not self.book.over(number)
        self.book.not_added(number, "again", self.now)
        assert (self.book.open_orders, self.book.failed_adds) == (before, failed)

    # ── what nobody ordered ──────────────────────────────────────────────────────────────────

    @rule(which=ANY)
    def crashes(self, which: int) -> None:
        id = picked(sorted(self.present), which)
        one = self.present[id]
        self.present[id] = replace(one, view=None, life=one.life + "'", drained=False)

    @rule(which=ANY, drained=st.booleans(), pinned=st.booleans())
    def an_operator_wants(self, which: int, drained: bool, pinned: bool) -> None:
        id = picked(sorted(self.present), which)
        self.present[id] = replace(self.present[id], drained=drained, pinned=pinned)

    @rule(seconds=st.floats(0.0, 100.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.look()

    # ── laws ─────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def each_order_settles_once(self) -> None:
        now_open = {one.number for one in self.book.open_orders}
        assert now_open <= self.given.keys()
        assert not now_open & self.settled, "it was settled, and is open again"
        self.settled = self.given.keys() - now_open

    def teardown(self) -> None:
        """All answers come: nothing is left open, and the counts add up."""
        for order in self.book.open_orders:
            if not isinstance(order, AddOrder):
                assert self.book.over(order.number)
            elif order.worker in self.present:
                self.present[order.worker] = replace(self.present[order.worker], view=IDLE_VIEW)
            else:
                self.book.not_added(order.number, "the end", self.now)
        workers = self.book.look(self.present, self.now)
        assert self.book.open_orders == ()
        assert workers.keys() == self.present.keys()
        leaving = {id for id, one in workers.items() if one.draining}
        assert leaving == {id for id, one in self.present.items() if one.drained}


def serving(role: Role) -> PresentWorker:
    return PresentWorker(role=role, view=IDLE_VIEW, devices=DEVICES[role], life="1")


def picked(among, which: int):
    return among[which % len(among)]


class TestOrders(Orders.TestCase):
    settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


class Unlimited(MoveBook):
    def _fits(self, more, crew):
        return True


class SettlesAgain(MoveBook):
    def over(self, number):
        return super().over(number) or number % 2 == 0


def check_is_found(kind: type[MoveBook]) -> None:
    broken = type("Broken", (Orders,), {"kind": kind})
    quick = settings(
        max_examples=200, stateful_step_count=30, phases=[Phase.generate], database=None
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(broken, settings=quick)


@pytest.mark.parametrize("kind", [Unlimited, SettlesAgain])
def test_the_laws_find_who_breaks_them(kind: type[MoveBook]) -> None:
    check_is_found(kind)


def test_the_laws_find_who_takes_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def who_may_leave(role, workers, crew, views):
        return to_leave(crew, views, role, workers)

    monkeypatch.setattr(move_book, "_who_may_leave", who_may_leave)
    check_is_found(MoveBook)
