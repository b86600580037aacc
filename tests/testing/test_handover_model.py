"""The lease and hand-over machine, in every order of events within small bounds.

The full bounds (half a million states) by hand: `python -m antiphon.testing.handover`.
"""

from collections.abc import Iterable, Sequence

import pytest

from antiphon.core.handover import LeaseBook, PullCommand, Puller
from antiphon.core.requests import RequestBook
from antiphon.testing.explore import Explored, Violation, explore
from antiphon.testing.faulty_cluster import (
    ForgetsRelease,
    TakesAnybody,
    book_that_loses_resume_points,
)
from antiphon.testing.handover import Bounds, HandoverModel, HandoverParts
from antiphon.testing.handover.facts import GATEWAY
from antiphon.testing.handover.owner_memory import OwnerMemory
from antiphon.types import (
    Command,
    FleetEvent,
    HealthChanged,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    OfferedPage,
    RequestId,
    Seconds,
)


@pytest.mark.parametrize(
    ("bounds", "least_states"),
    [
        (Bounds(prefill=1, decode=1, requests=1, crashes=0, waits=0), 9),
        (Bounds(prefill=1, decode=1, requests=1, crashes=1, waits=1), 300),
        (Bounds(prefill=2, decode=2, requests=1, crashes=2, waits=1), 2_000),
        (Bounds(prefill=1, decode=2, requests=2, crashes=2, waits=0), 1_000),
        (Bounds(prefill=2, decode=2, requests=2, crashes=1, waits=0), 5_000),
        (Bounds(prefill=2, decode=2, requests=2, crashes=0, waits=1), 1_000),
    ],
)
def test_no_order_of_events_breaks_a_law(bounds: Bounds, least_states: int) -> None:
    found = explore(HandoverModel(bounds))
    assert isinstance(found, Explored), found
    assert found.states >= least_states


class Unfenced(OwnerMemory):
    """Generations are ignored: whoever reads takes what is there."""

    def read(self, wanted: OfferedPage) -> str | None:
        return self.contents[wanted.page]


class GivesBackTwice(LeaseBook):
    """Whatever ends a lease drops its references, and expiry does so once more."""

    def expire(self, now: Seconds) -> Sequence[LeaseId]:
        ends = [one for one in self._leases.values() if one.expires_at <= now]
        leases = super().expire(now)
        for one in ends:
            self._drop(one.references)
        return leases


class GivesBackEarly(LeaseBook):
    """A lease that is taken loses its pages at once."""

    def take(self, lease, taker, attempt, now):
        answer = super().take(lease, taker, attempt, now)
        if lease in self and self._leases[lease].taken:
            self._drop(self._leases[lease].references)
        return answer


class Reckless(Puller):
    """Neither counts its lease nor heeds refusals: a copy is good whenever it ends."""

    def due(self, now: Seconds) -> Sequence[PullCommand]:
        self._believe(now)
        return super().due(now)

    def copied(
        self, request: RequestId, attempt: int, good: tuple[bool, ...], problem: str, now: Seconds
    ) -> Sequence[PullCommand]:
        self._believe(now)
        return super().copied(request, attempt, good, problem, now)

    def renewed(
        self, answers: Iterable[LeaseHeld | LeaseRefused], now: Seconds
    ) -> Sequence[PullCommand]:
        return ()

    def _believe(self, now: Seconds) -> None:
        for one in self._pulls.values():
            one.safe_until = max(one.safe_until, now + 0.1)


SMALL = Bounds(prefill=1, decode=2, requests=1, crashes=1, waits=1)


@pytest.mark.parametrize(
    ("law", "parts"),
    [
        ("I19", HandoverParts(memory=Unfenced, puller=Reckless)),
        ("I22", HandoverParts(leases=GivesBackEarly)),
        ("I3", HandoverParts(leases=GivesBackTwice)),
        ("I4", HandoverParts(leases=ForgetsRelease)),
        ("I23", HandoverParts(leases=TakesAnybody)),
        ("I14", HandoverParts(book=book_that_loses_resume_points)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_faulty_part_is_found_on_a_shortest_trace(law: str, parts: HandoverParts) -> None:
    found = explore(HandoverModel(SMALL, parts))
    assert isinstance(found, Violation), f"nothing finds it: {found}"
    assert law in found.problem
    assert len(found.trace) <= 12
    replay(HandoverModel(SMALL, parts), found)


@pytest.mark.parametrize(
    "parts", [HandoverParts(memory=Unfenced), HandoverParts(puller=Reckless)], ids=["", ""]
)
def test_either_fence_alone_keeps_wrong_pages_out(parts: HandoverParts) -> None:
    """The taker's count of its lease and the owner's generations guard against the same."""
    assert isinstance(explore(HandoverModel(SMALL, parts)), Explored)


def replay(model: HandoverModel, found: Violation) -> None:
    """The trace leads where it says, by moves that were possible."""
    state = model.first()[found.first]
    for move in found.trace[:-1]:
        assert move in model.moves(state)
        state = model.after(state, move)


class Deaf(RequestBook):
    """Does not hear that a worker was lost."""

    def observe(self, event: FleetEvent, now: Seconds) -> Sequence[Command]:
        return () if isinstance(event, HealthChanged) else super().observe(event, now)


def test_what_waits_for_the_dead_for_ever_is_found() -> None:
    """aibrix 2289, dynamo 13088: one leg fails, and the other waits until the client hangs up."""
    found = explore(HandoverModel(SMALL, HandoverParts(book=Deaf)))
    assert isinstance(found, Violation)
    assert any(move[0] == "crash" for move in found.trace)


def test_all_moves_are_made() -> None:
    """Deliveries both ways, copies, computing, deaths, waiting: none is forgotten."""
    model = HandoverModel(SMALL)
    seen: set[tuple[str, ...]] = set()
    todo = list(model.first())
    known = set(todo)
    while todo:
        state = todo.pop()
        for move in model.moves(state):
            seen.add(move[:1] if move[0] != "deliver" else (move[0], move[1].split("-")[0]))
            there = model.after(state, move)
            if there not in known:
                known.add(there)
                todo.append(there)
    assert seen == {
        *(("deliver", GATEWAY), ("deliver", "prefill"), ("deliver", "decode")),
        *(("read",), ("compute",), ("crash",), ("wait",), ("sleep",)),
    }
