"""Leases against a model: who holds what until when, and that every reference returns once."""

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from antiphon.core.handover import LeaseBook
from antiphon.errors import BugError
from antiphon.types import (
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    RequestId,
)

TTL_S = 1.0
A, B = Incarnation("a"), Incarnation("b")
ID = LeaseId("l")
GONE = LeaseRefused(ID, LeaseRefusal.GONE)
FOREIGN = LeaseRefused(ID, LeaseRefusal.FOREIGN)
HELD = LeaseHeld(ID)


def book(dropped: list | None = None) -> LeaseBook:
    one = LeaseBook((dropped if dropped is not None else []).extend, ttl_s=TTL_S)
    one.offer(ID, RequestId("r"), 1, (3, 4, 3), 0.0)
    return one


def test_offer_grant_take_acknowledge() -> None:
    dropped: list[int] = []
    one = book(dropped)
    assert (len(one), len(one.pages), 3 in one.pages) == (1, 2, True)
    assert one.take(ID, A, 1, 0.1) == FOREIGN, "nobody has granted it"
    assert one.grant(ID, A, 1, 0.2) == HELD
    assert one.take(ID, A, 1, 0.3) == HELD
    assert one.take(ID, A, 1, 0.3) == HELD, "an answer may get lost"
    assert dropped == []
    assert one.acknowledge(ID, A, 1, 0.4) == HELD
    assert (dropped, len(one), len(one.pages)) == ([3, 4, 3], 0, 0)
    for again in (
        one.acknowledge(ID, A, 1, 0.5),
        one.take(ID, A, 1, 0.5),
        one.grant(ID, A, 2, 0.5),
        one.release(ID, 0.5),
        *one.renew([ID], None, 0.5),
    ):
        assert again == GONE
    assert dropped == [3, 4, 3]


def test_a_new_grant_fences_the_earlier_taker() -> None:
    """vLLM 21570: pages were recycled under a reader that nobody had told."""
    one = book()
    one.grant(ID, A, 1, 0.0)
    one.take(ID, A, 1, 0.0)
    assert one.grant(ID, B, 2, 0.1) == HELD
    assert one.take(ID, A, 1, 0.2) == FOREIGN
    assert list(one.renew([ID], A, 0.2)) == [FOREIGN]
    assert one.acknowledge(ID, A, 1, 0.2) == FOREIGN
    assert one.grant(ID, A, 1, 0.2) == FOREIGN, "an attempt that is over comes late"
    assert one.acknowledge(ID, B, 2, 0.3) == HELD


def test_the_same_taker_in_another_attempt_is_another_taker() -> None:
    one = book()
    one.grant(ID, A, 1, 0.0)
    one.grant(ID, A, 2, 0.0)
    assert one.take(ID, A, 1, 0.0) == FOREIGN and one.take(ID, A, 2, 0.0) == HELD


def test_the_gateway_renews_until_it_is_taken_then_the_taker_does() -> None:
    """llm-d 1138: between hand-over and decode nobody owned the blocks."""
    one = book()
    one.grant(ID, A, 1, 0.0)
    assert list(one.renew([ID], A, 0.1)) == [FOREIGN]
    assert list(one.renew([ID], None, 0.2)) == [HELD]
    assert one.next_deadline() == 0.2 + TTL_S
    one.take(ID, A, 1, 0.3)
    assert list(one.renew([ID], None, 0.4)) == [FOREIGN]
    assert list(one.renew([ID], A, 0.5)) == [HELD]
    one.grant(ID, B, 2, 0.6)
    assert list(one.renew([ID], None, 0.7)) == [HELD], "a new grant gives it back"


def test_renewals_are_answered_one_by_one() -> None:
    one = book()
    other = LeaseId("other")
    assert list(one.renew([other, ID], None, 0.1)) == [
        LeaseRefused(other, LeaseRefusal.GONE),
        HELD,
    ]


def test_what_has_run_out_is_gone_before_it_is_swept_up() -> None:
    dropped: list[int] = []
    one = book(dropped)
    assert one.expire(0.999) == []
    assert one.grant(ID, A, 1, TTL_S) == GONE
    assert dropped == [3, 4, 3] and one.expired_total == 1 and one.expire(TTL_S) == []


def test_everything_of_a_request_or_of_a_gateway_can_be_dropped() -> None:
    dropped: list[int] = []
    one = book(dropped)
    one.offer(LeaseId("m"), RequestId("s"), 1, (9,), 0.0)
    assert (one.release_of(RequestId("s")), one.release_of(RequestId("s"))) == (1, 0)
    assert dropped == [9]
    one.drop_all()
    assert dropped == [9, 3, 4, 3] and one.next_deadline() is None


def test_pages_that_are_worked_on_return_when_the_work_is_done() -> None:
    dropped: list[int] = []
    one = book(dropped)
    one.hold(ID)
    with pytest.raises(BugError, match="held already"):
        one.hold(ID)
    assert one.release(ID, 0.1) == HELD and (dropped, len(one), len(one.pages)) == ([], 0, 2)
    assert one.let_go(ID) is False
    assert (dropped, len(one.pages)) == ([3, 4, 3], 0)
    other = book()
    other.hold(ID)
    assert other.let_go(ID) is True and len(other) == 1


def test_an_id_is_used_once_and_a_lease_lasts() -> None:
    one = book()
    with pytest.raises(BugError, match="twice"):
        one.offer(ID, RequestId("r"), 1, (), 0.0)
    with pytest.raises(BugError, match="0 s"):
        LeaseBook(print, ttl_s=0)


class LeaseMachine(RuleBasedStateMachine):
    """Any order of calls by a gateway and two takers, one of them fenced most of the time."""

    kind: ClassVar[type[LeaseBook]] = LeaseBook

    @initialize()
    def build(self) -> None:
        self.dropped: Counter[int] = Counter()
        self.book = self.kind(self.dropped.update, ttl_s=TTL_S)
        self.now = 0.0
        self.offered = 0
        self.granted: dict[LeaseId, tuple[Incarnation, int]] = {}
        self.until: dict[LeaseId, float] = {}
        self.taken: set[LeaseId] = set()

    ids = st.integers(0, 3).map(lambda number: LeaseId(f"l{number}"))
    takers = st.sampled_from([A, B])
    attempts = st.integers(1, 2)

    def living(self, lease: LeaseId) -> bool:
        return self.until.get(lease, -1.0) > self.now

    def judge(self, lease: LeaseId, answer, *, mine: bool, ends: bool = False) -> bool:
        if not self.living(lease):
            assert answer == LeaseRefused(lease, LeaseRefusal.GONE)
            return False
        if not mine:
            assert answer == LeaseRefused(lease, LeaseRefusal.FOREIGN), "it was let in"
            return False
        assert answer == LeaseHeld(lease)
        self.until[lease] = -1.0 if ends else self.now + TTL_S
        return True

    @rule()
    def offer(self) -> None:
        lease = LeaseId(f"l{self.offered}")
        self.book.offer(lease, RequestId("r"), 1, (self.offered, self.offered), self.now)
        self.until[lease] = self.now + TTL_S
        self.offered += 1

    @rule(lease=ids, taker=takers, attempt=attempts)
    def grant(self, lease: LeaseId, taker: Incarnation, attempt: int) -> None:
        before = self.granted.get(lease)
        answer = self.book.grant(lease, taker, attempt, self.now)
        if self.judge(lease, answer, mine=before is None or attempt >= before[1]):
            self.granted[lease] = (taker, attempt)
            if before != (taker, attempt):
                self.taken.discard(lease)

    @rule(lease=ids, taker=takers, attempt=attempts)
    def take(self, lease: LeaseId, taker: Incarnation, attempt: int) -> None:
        mine = self.granted.get(lease) == (taker, attempt)
        if self.judge(lease, self.book.take(lease, taker, attempt, self.now), mine=mine):
            self.taken.add(lease)

    @rule(lease=ids, holder=st.sampled_from([None, A, B]))
    def renew(self, lease: LeaseId, holder: Incarnation | None) -> None:
        mine = holder == (self.granted[lease][0] if lease in self.taken else None)
        (answer,) = self.book.renew([lease], holder, self.now)
        self.judge(lease, answer, mine=mine)

    @rule(lease=ids, taker=takers, attempt=attempts)
    def acknowledge(self, lease: LeaseId, taker: Incarnation, attempt: int) -> None:
        mine = self.granted.get(lease) == (taker, attempt)
        answer = self.book.acknowledge(lease, taker, attempt, self.now)
        self.judge(lease, answer, mine=mine, ends=True)

    @rule(lease=ids, ends=st.booleans())
    def go_on(self, lease: LeaseId, ends: bool) -> None:
        """The one it is granted to does what it is there for."""
        taker, attempt = self.granted.get(lease, (A, 1))
        self.take(lease, taker, attempt)
        if ends:
            self.acknowledge(lease, taker, attempt)

    @rule(lease=ids)
    def release(self, lease: LeaseId) -> None:
        self.judge(lease, self.book.release(lease, self.now), mine=True, ends=True)

    @rule(wait_s=st.sampled_from([0.0, 0.3, 0.5, 1.0]), sweep=st.booleans())
    def wait(self, wait_s: float, sweep: bool) -> None:
        self.now += wait_s
        if sweep:
            self.book.expire(self.now)
            deadline = self.book.next_deadline()
            assert deadline is None or deadline > self.now

    @invariant()
    def references_return_once(self) -> None:
        if not hasattr(self, "book"):
            return
        assert all(count == 2 for count in self.dropped.values()), "dropped more than once"
        for lease in self.until:
            if self.living(lease):
                assert lease in self.book and not self.dropped[int(lease[1:])]

    def teardown(self) -> None:
        if hasattr(self, "book"):
            self.book.expire(self.now + 2 * TTL_S)
            assert self.dropped == Counter(dict.fromkeys(range(self.offered), 2)), "a leak"
            assert (len(self.book), len(self.book.pages)) == (0, 0)


LeaseMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLeaseMachine = LeaseMachine.TestCase


class LetsForeignersIn(LeaseBook):
    """Takes everybody for the one it was granted to."""

    def acknowledge(self, lease, taker, attempt, now):
        return self.release(lease, now)


class ForgetsReleases(LeaseBook):
    """A released lease is gone, and its pages with it."""

    def release(self, lease, now):
        one = self._living(lease, now)
        if one is not None:
            self._tally.remove(one.references)
            del self._leases[lease]
            return LeaseHeld(lease)
        return LeaseRefused(lease, LeaseRefusal.GONE)


class DropsTwice(LeaseBook):
    """An acknowledgement gives the pages back, and so does the end of the time."""

    def acknowledge(self, lease, taker, attempt, now):
        one = self._living(lease, now)
        answer = super().acknowledge(lease, taker, attempt, now)
        if isinstance(answer, LeaseHeld) and one is not None:
            self._drop(one.references)
        return answer


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (LetsForeignersIn, "it was let in"),
        (ForgetsReleases, "a leak"),
        (DropsTwice, "dropped more than once|a leak"),
    ],
)
@pytest.mark.no_cover
def test_finds(kind: type[LeaseBook], message: str) -> None:
    faulty = type("Faulty", (LeaseMachine,), {"kind": kind})
    search = settings(
        max_examples=5000,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.raises(AssertionError, match=message):
        run_state_machine_as_test(faulty, settings=search)
