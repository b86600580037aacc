"""A prefill and a decode worker driven in any order, with all that can go wrong between them."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from handover_pair import Pair, Side
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from antiphon.core.handover import LeaseBook
from antiphon.core.said_by_workers import wrong_in_view
from antiphon.core.scheduler.receiving import Receiving
from antiphon.errors import BugError
from antiphon.sim.law import check_pages
from antiphon.testing import laws
from antiphon.testing.strategies import WorkerSetup, fetches, requests, worker_setups


class HandoverMachine(RuleBasedStateMachine):
    """Every interleaving of two workers' steps, offers, pulls, fetches, aborts and expiries."""

    prefill_parts: ClassVar[dict[str, Any]] = {}
    decode_parts: ClassVar[dict[str, Any]] = {}

    @initialize(
        setup=worker_setups(min_tokens=60, max_tokens=240),
        bad=st.lists(st.frozensets(st.integers(0, 9), max_size=2), max_size=6),
    )
    def build(self, setup: WorkerSetup, bad: list[frozenset[int]]) -> None:
        self.pair = Pair(
            setup,
            bad=bad,
            prefill=replace(setup.parts, **self.prefill_parts),
            decode=replace(setup.parts, **self.decode_parts),
        )
        self.number = 0

    def draw_request(self, data: st.DataObject):
        self.number += 1
        return data.draw(requests(id=f"r{self.number}", now=self.pair.now))

    def side(self, decodes: bool) -> Side:
        return self.pair.decode if decodes else self.pair.prefill

    @rule(data=st.data(), fetch=fetches())
    def submit(self, data: st.DataObject, fetch: int) -> None:
        self.pair.submit(self.draw_request(data), fetch)

    @rule(data=st.data(), decodes=st.booleans(), fetch=fetches())
    def submit_whole(self, data: st.DataObject, decodes: bool, fetch: int) -> None:
        self.pair.submit_whole(self.draw_request(data), self.side(decodes), fetch)

    @rule(decodes=st.booleans(), faulty=st.sampled_from([False] * 9 + [True]))
    def turn(self, decodes: bool, faulty: bool) -> None:
        side = self.side(decodes)
        if side.plan is not None:
            self.pair.complete(side, faulty)
        else:
            self.pair.step(side)

    @rule(turns=st.integers(2, 6))
    def run(self, turns: int) -> None:
        for turn in range(turns):
            self.turn(bool(turn % 2), False)
            self.turn(bool(turn % 2), False)

    @rule(decodes=st.booleans(), rarely=st.integers(0, 9))
    def fail(self, decodes: bool, rarely: int) -> None:
        side = self.side(decodes)
        if side.plan is not None and not rarely:
            self.pair.fail(side)

    @rule(data=st.data())
    def hand_over(self, data: st.DataObject) -> None:
        """The common case in one go, so that odd ones have something to happen to."""
        self.submit(data, 0)
        self.run(6)
        self.adopt()
        self.run(2)

    @rule()
    def adopt(self) -> None:
        for entry in self.pair.book.values():
            if entry.offer is not None and not entry.adopted and self.pair.open_of(entry):
                self.pair.adopt(entry)
                if entry.offer is None:
                    self.pair.recompute(entry)
                return

    @precondition(lambda self: self.pair.pulls)
    @rule(which=st.integers(0, 9))
    def end_pull(self, which: int) -> None:
        pulls = self.pair.pulls
        self.pair.end_pull(pulls[which % len(pulls)])

    @precondition(lambda self: self.pair.fetches)
    @rule(which=st.integers(0, 9), lost=st.frozensets(st.integers(0, 6), max_size=2))
    def end_fetch(self, which: int, lost: frozenset[int]) -> None:
        self.pair.end_fetch(which, lost)

    @precondition(lambda self: self.pair.book)
    @rule(data=st.data(), sequence=st.sampled_from([None, None, 0, 1]), seldom=st.integers(0, 2))
    def abort(self, data: st.DataObject, sequence: int | None, seldom: int) -> None:
        entry = data.draw(st.sampled_from(list(self.pair.book.values())))
        if self.pair.open_of(entry) and not seldom:
            self.pair.abort(entry, sequence)

    @precondition(lambda self: self.pair.book)
    @rule(data=st.data(), fetch=fetches(), seldom=st.integers(0, 2))
    def begin_anew(self, data: st.DataObject, fetch: int, seldom: int) -> None:
        """The next attempt comes to the worker that has this one, and no abort before it."""
        entry = data.draw(st.sampled_from(list(self.pair.book.values())))
        if entry.side is self.pair.decode and self.pair.open_of(entry) and not seldom:
            self.pair.recompute(entry, fetch)

    @rule(wait_s=st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    def expire(self, wait_s: float) -> None:
        self.pair.now += wait_s
        self.pair.expire()

    @rule(seldom=st.integers(0, 5))
    def release(self, seldom: int) -> None:
        """The gateway gives an offer up: whoever pulls it finds out."""
        pair = self.pair
        if not seldom:
            for lease in pair.sealed:
                pair.prefill.scheduler.leases.release(lease, pair.now)

    @invariant()
    def laws_hold(self) -> None:
        if not hasattr(self, "pair"):
            return
        for side in (self.pair.prefill, self.pair.decode):
            view = side.scheduler.view(self.pair.now)
            check_pages(view)
            assert not wrong_in_view(view), "its gateway would drop it"
            assert 2 * view.offered_pages <= view.total_pages, "more than half is offered"
        self.pair.check_sealed()

    def teardown(self) -> None:
        if not hasattr(self, "pair"):
            return
        for _ in range(2):  # what waits for leases that nobody ends goes on when they run out
            self.pair.finish()
            self.pair.now += 100
            self.pair.expire()
        for side in (self.pair.prefill, self.pair.decode):
            laws.check_drained(side.scheduler.view(self.pair.now))
            check_pages(side.scheduler.view(self.pair.now))
        for entry in self.pair.book.values():
            assert not self.pair.open_of(entry), f"I1: {entry.request.id} does not end"
            self.pair.check_tokens(entry)


HandoverMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None
)
TestHandoverMachine = HandoverMachine.TestCase


# ── negative controls ─────────────────────────────────────────────────────────────────────────


class ForgetsReleases(LeaseBook):
    """Whoever says that nobody wants a lease is not heard."""

    def release(self, lease, now):
        return self.grant(lease, self._leases[lease].taker, 9**9, now) if lease in self else None

    def acknowledge(self, lease, taker, attempt, now):
        self._leases.pop(lease, None)


class CountsBadPages(Receiving):
    """Takes what a copy says of its pages for granted."""

    def _count(self, flight, good):
        super()._count(flight, (True,) * len(good))


class LetsGoTooEarly(LeaseBook):
    """Gives the pages back at the offer, and not when the lease ends."""

    def offer(self, lease, request, attempt, references, now):
        super().offer(lease, request, attempt, (), now)
        self._drop(references)


@pytest.mark.parametrize(
    ("side", "parts", "message"),
    [
        ("prefill_parts", {"lease_book": ForgetsReleases}, "I4"),
        ("decode_parts", {"receiving": CountsBadPages}, "I5"),
        ("prefill_parts", {"lease_book": LetsGoTooEarly}, "a sealed page changed"),
    ],
)
def test_finds(side: str, parts: dict[str, Any], message: str) -> None:
    faulty = type("Faulty", (HandoverMachine,), {side: parts})
    search = settings(
        max_examples=6000,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.raises((AssertionError, BugError), match=message):
        run_state_machine_as_test(faulty, settings=search)
