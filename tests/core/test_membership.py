"""Health from signs of life: each change told once, in order, and no life begins twice."""

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from antiphon.core.membership import Membership
from antiphon.errors import BugError
from antiphon.types import Health, HealthChanged, Incarnation, JoinRefusal, JoinRefused, WorkerId

A, B = WorkerId("a"), WorkerId("b")
ONE, TWO = Incarnation("one"), Incarnation("two")


def membership(*, at: float = 0.0) -> Membership:
    made = Membership(heartbeat_s=0.25, lost_after_s=2.0)
    assert made.joined(A, ONE, at) == ()
    return made


def changed(*changes: tuple[WorkerId, Health]) -> tuple[HealthChanged, ...]:
    return tuple(HealthChanged(worker, health) for worker, health in changes)


def test_silence_makes_a_worker_suspect_and_then_lost() -> None:
    made = membership()
    assert made.health(A) is Health.JOINED
    assert made.next_deadline() == 0.75
    assert made.due(0.7) == ()
    assert made.due(0.75) == changed((A, Health.SUSPECT))
    assert made.due(0.8) == ()
    assert made.next_deadline() == 2.0
    assert made.due(2.0) == changed((A, Health.LOST))
    assert made.health(A) is Health.LOST
    assert made.next_deadline() is None
    assert made.due(9.0) == ()


def test_a_suspect_that_is_heard_is_well_again_at_once() -> None:
    made = membership()
    made.due(0.75)
    assert made.heard(A, ONE, 1.0)
    assert made.next_deadline() == 1.0
    assert made.due(1.0) == changed((A, Health.JOINED))
    assert made.next_deadline() == 1.75


def test_a_suspect_that_was_heard_long_ago_stays_suspect_and_is_not_asked_about_for_ever() -> None:
    made = membership()
    made.due(0.75)
    made.heard(A, ONE, 0.76)
    assert made.due(1.01) == changed((A, Health.JOINED))
    made.due(1.51)
    made.heard(A, ONE, 1.0)  # an older sign changes nothing
    made.due(1.75)
    deadline = made.next_deadline()
    assert deadline is not None
    assert deadline > 1.75


def test_a_closed_stream_is_a_loss_at_once() -> None:
    made = membership()
    assert made.left(A, TWO, 0.1) == ()
    assert made.left(A, ONE, 0.1) == changed((A, Health.LOST))
    assert made.left(A, ONE, 0.2) == ()
    assert not made.heard(A, ONE, 0.2)


def test_a_life_that_was_given_up_never_comes_back_its_process_does() -> None:
    """sglang 10110, dynamo 13088 in our terms: stopped, declared lost, continued."""
    made = membership()
    made.due(0.75)
    made.due(2.0)
    assert not made.heard(A, ONE, 2.1)
    again = made.joined(A, ONE, 2.2)
    assert isinstance(again, JoinRefused)
    assert again.reason is JoinRefusal.OVER
    assert "join under a new incarnation" in again.message
    assert made.joined(A, TWO, 2.3) == ()
    assert made.heard(A, TWO, 2.4)
    assert not made.heard(A, ONE, 2.5)


def test_a_successor_ends_the_life_before_it() -> None:
    """vLLM 49238: stale state of a worker that restarted under the same name."""
    made = membership()
    assert made.joined(A, TWO, 0.5) == changed((A, Health.LOST))
    assert not made.heard(A, ONE, 0.5)
    assert made.left(A, ONE, 0.6) == ()  # the old stream closes late
    assert made.health(A) is Health.JOINED


def test_one_life_joins_once_and_under_one_name() -> None:
    made = membership()
    assert isinstance(made.joined(A, ONE, 0.1), JoinRefused)
    assert isinstance(made.joined(B, ONE, 0.1), JoinRefused)
    assert made.workers() == [A]


def test_draining_outlasts_suspicion_and_ends_with_the_life() -> None:
    made = membership()
    assert made.drain(A, True) == changed((A, Health.DRAINING))
    assert made.drain(A, True) == ()
    assert made.due(0.75) == changed((A, Health.SUSPECT))
    made.heard(A, ONE, 0.8)
    assert made.due(0.8) == changed((A, Health.DRAINING))
    assert made.drain(A, False) == changed((A, Health.JOINED))
    made.drain(A, True)
    made.joined(A, TWO, 1.0)
    assert made.health(A) is Health.JOINED
    assert made.drain(B, True) == ()


def test_a_suspect_can_be_told_to_drain() -> None:
    made = membership()
    made.due(0.75)
    assert made.drain(A, True) == ()
    made.heard(A, ONE, 0.8)
    assert made.due(0.8) == changed((A, Health.DRAINING))


def test_a_peer_is_not_lost_because_this_process_stood_still() -> None:
    """sglang 13657: one process's trouble must not count as the death of healthy ones."""
    made = membership()
    made.heard(A, ONE, 0.25)
    assert made.due(60.0) == changed((A, Health.SUSPECT))
    assert made.heard(A, ONE, 60.0)  # what had been waiting to be read
    assert made.due(60.0) == changed((A, Health.JOINED))


def test_one_that_is_gone_is_lost_soon_after_a_standstill() -> None:
    made = membership()
    made.due(60.0)
    assert made.next_deadline() == 61.25
    assert made.due(61.25) == changed((A, Health.LOST))


def test_the_order_of_several_is_by_id() -> None:
    made = Membership(heartbeat_s=0.25, lost_after_s=2.0)
    made.joined(B, TWO, 0.0)
    made.joined(A, ONE, 0.0)
    assert made.due(0.75) == changed((A, Health.SUSPECT), (B, Health.SUSPECT))


def test_limits_that_contradict_each_other_are_a_bug() -> None:
    with pytest.raises(BugError, match="not above"):
        Membership(heartbeat_s=1.0, lost_after_s=1.0)


def test_memory_of_ended_lives_is_bounded() -> None:
    made = Membership(heartbeat_s=0.25, lost_after_s=2.0)
    for number in range(10_000):
        made.joined(A, Incarnation(f"life {number}"), float(number))
    assert len(made._ended) <= 4096
    assert made.workers() == [A]


class Fleet(RuleBasedStateMachine):
    """Against a plain model: who lives, when each was heard, what was told."""

    @initialize()
    def begin(self) -> None:
        self.made = Membership(heartbeat_s=0.25, lost_after_s=2.0)
        self.now, self.lives = 0.0, 0
        self.life: dict[WorkerId, Incarnation] = {}
        self.heard_at: dict[WorkerId, float] = {}
        self.told: dict[WorkerId, Health] = {}
        self.over: list[Incarnation] = []

    def note(self, changes: Sequence[HealthChanged]) -> None:
        for change in changes:
            assert self.told.get(change.worker, Health.LOST) is not change.health
            self.told[change.worker] = change.health
            if change.health is Health.LOST:
                self.over.append(self.life.pop(change.worker))
                del self.told[change.worker]

    @rule(worker=st.sampled_from([A, B]))
    def join(self, worker: WorkerId) -> None:
        self.lives += 1
        life = Incarnation(str(self.lives))
        changes = self.made.joined(worker, life, self.now)
        assert not isinstance(changes, JoinRefused)
        self.note(changes)
        self.life[worker], self.told[worker] = life, Health.JOINED
        self.heard_at[worker] = self.now

    @rule(worker=st.sampled_from([A, B]), data=st.data())
    def ended_lives_are_refused(self, worker: WorkerId, data: st.DataObject) -> None:
        if self.over:
            life = data.draw(st.sampled_from(self.over))
            assert isinstance(self.made.joined(worker, life, self.now), JoinRefused)
            assert not self.made.heard(worker, life, self.now)
            assert self.made.left(worker, life, self.now) == ()

    @rule(worker=st.sampled_from([A, B]))
    def hear(self, worker: WorkerId) -> None:
        life = self.life.get(worker, Incarnation("never"))
        assert self.made.heard(worker, life, self.now) is (worker in self.life)
        self.heard_at[worker] = self.now

    @rule(worker=st.sampled_from([A, B]), on=st.booleans())
    def drain(self, worker: WorkerId, on: bool) -> None:
        self.note(self.made.drain(worker, on))

    @rule(worker=st.sampled_from([A, B]))
    def leave(self, worker: WorkerId) -> None:
        if worker in self.life:
            self.note(self.made.left(worker, self.life[worker], self.now))
            assert worker not in self.life

    @rule(pause=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.3]))
    def wait(self, pause: float) -> None:
        end = self.now + pause
        rounds = 0
        while (at := self.made.next_deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.note(self.made.due(self.now))
            rounds += 1
            assert rounds < 20, "due is due again and again"
        self.now = end
        self.note(self.made.due(self.now))

    @invariant()
    def health_is_what_was_told(self) -> None:
        for worker in (A, B):
            assert self.made.health(worker) is self.told.get(worker, Health.LOST)
        assert self.made.workers() == sorted(self.life)

    @invariant()
    def nobody_is_silent_for_too_long(self) -> None:
        for worker in self.life:
            silent_s = self.now - self.heard_at[worker]
            assert silent_s <= 2.0 + 1e-9
            if silent_s >= 0.75 + 1e-9:
                assert self.told[worker] is Health.SUSPECT


TestFleet = Fleet.TestCase
TestFleet.settings = settings(deadline=None, max_examples=150, stateful_step_count=40)
