"""Negative controls of the book's laws: parts that break one, put in at construction, are found."""

from dataclasses import replace

import pytest
from hostile_fleet import HostileFleet
from hypothesis import Phase, settings
from hypothesis.stateful import (
    run_state_machine_as_test,
)

from antiphon.core.requests import DropReason
from antiphon.core.requests.dispatcher import Dispatcher
from antiphon.core.requests.facts import Fact, why_unusable
from antiphon.core.requests.handovers import Handovers
from antiphon.core.requests.open_request import OpenRequest
from antiphon.core.requests.parts import Parts
from antiphon.errors import BugError
from antiphon.types import (
    Command,
    Offer,
    Renew,
    Request,
    RequestId,
    Seconds,
)


def ignores_attempts(entry: OpenRequest, fact: Fact) -> DropReason | None:
    """Takes every fact for one of the current attempt."""
    return why_unusable(entry, replace(fact, attempt=entry.request.attempt))


class KeepsOffers(Dispatcher):
    """Never tells an owner that nobody will come."""

    def release(self, offer: Offer) -> list[Command]:
        return []


class ForgetsReleaseAtTheEnd(Dispatcher):
    """Drops a request's offer from its books, and no more."""

    def give_up_offer(self, entry: OpenRequest) -> list[Command]:
        super().give_up_offer(entry)
        return []


class StartsOver(OpenRequest):
    """Begins each attempt at the prompt, as if nothing had been delivered."""

    def resumed(self) -> Request:
        return replace(super().resumed(), resumed=())


class ForgetsEnds(OpenRequest):
    """Runs sequences again that have ended."""

    def resumed(self) -> Request:
        return replace(super().resumed(), done=())


class NeverGivesUp(OpenRequest):
    """Does not count deaths."""

    def try_again(self, now: Seconds) -> None:
        super().try_again(now)
        self.fruitless = 0


class BlamesWhoWaits(OpenRequest):
    """Counts attempts that had not begun."""

    def try_again(self, now: Seconds) -> None:
        self.fruitless += not self.attempt.begun
        super().try_again(now)


class Forgetful(Handovers):
    """Renews one lease of each owner."""

    def due(self, now: float) -> list[Renew]:
        return [replace(renewal, leases=renewal.leases[:1]) for renewal in super().due(now)]


class Clings(Handovers):
    """Goes on renewing what is over."""

    def remove(self, offer: Offer) -> None:
        """Nothing."""


class KeepsLoad(Dispatcher):
    """Never tells the router that a request is over."""

    def forget(self, id: RequestId, now: float, *, again: bool = False) -> None:
        """Nothing."""


class LetsThemRun(Dispatcher):
    """Moves a request without stopping it where it is."""

    def stop(self, entry: OpenRequest, sequence: int | None = None) -> list[Command]:
        return [] if sequence is None else super().stop(entry, sequence)


FAULTS = {
    "attempts ignored": Parts(why_unusable=ignores_attempts),
    "late offers not released": Parts(dispatcher=KeepsOffers),
    "a release forgotten": Parts(dispatcher=ForgetsReleaseAtTheEnd),
    "the resume point lost": Parts(open_request=StartsOver),
    "ended sequences run again": Parts(open_request=ForgetsEnds),
    "deaths not counted": Parts(open_request=NeverGivesUp),
    "deaths counted against who waits": Parts(open_request=BlamesWhoWaits),
    "a renewal forgotten": Parts(handovers=Forgetful),
    "renewals of what is over": Parts(handovers=Clings),
    "the router not told": Parts(dispatcher=KeepsLoad),
    "no abort": Parts(dispatcher=LetsThemRun),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_faulty_part_is_found(fault: Parts) -> None:
    kind = type("Fleet", (HostileFleet,), {"parts": fault})
    bounds = settings(
        deadline=None,
        max_examples=400,
        stateful_step_count=50,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        print_blob=False,
    )
    with pytest.raises((AssertionError, KeyError, BugError)):
        run_state_machine_as_test(kind, settings=bounds)
