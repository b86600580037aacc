"""The laws of `RequestBook` on a fleet that dies, lies, repeats itself and never shuts up.

`fleet_machine` plays clients, workers and time; `fleet_model` checks each command.
"""

from fleet_model import WilfulRouter
from hostile_fleet import HostileFleet
from hypothesis import settings

from antiphon.core.router import Router
from antiphon.perf import DEFAULT_LINK_TIME, DEFAULT_STEP_TIME, FittedPhaseTime
from antiphon.types import (
    FleetEvent,
    Hold,
    Offer,
    Rejected,
    Request,
    RequestId,
    Role,
    Route,
    RouterConfig,
    WorkerId,
)

TestLaws = HostileFleet.TestCase


class TrueRouter(WilfulRouter):
    """The router that is served with, watched."""

    def __init__(self) -> None:
        super().__init__()
        self._router = Router(
            RouterConfig(policy="least-loaded"),  # which always splits if it can
            times=FittedPhaseTime(step_time=DEFAULT_STEP_TIME),
            transfer=DEFAULT_LINK_TIME,
            kv_bytes_per_token=1,
        )

    def observe(self, event: FleetEvent, now: float) -> None:
        super().observe(event, now)
        self._router.observe(event, now)

    def in_vain(
        self, request: Request, now: float, *, ahead_requests: int = 0, ahead_tokens: int = 0
    ) -> Rejected | None:
        return self._router.in_vain(
            request, now, ahead_requests=ahead_requests, ahead_tokens=ahead_tokens
        )

    def choose(
        self, request: Request, now: float, *, whole: bool = False
    ) -> Route | Hold | Rejected:
        return self._router.choose(request, now, whole=whole)

    def choose_decode(
        self, offer: Offer, request: Request, now: float
    ) -> WorkerId | Hold | Rejected:
        answer = self._router.choose_decode(offer, request, now)
        if isinstance(answer, Rejected):
            self.refused_offers.append(request.id)
        return answer

    def prefilled(self, request: RequestId, now: float) -> None:
        self._router.prefilled(request, now)

    def fetched(self, request: RequestId, missing_tokens: int, seconds: float, now: float) -> None:
        self._router.fetched(request, missing_tokens, seconds, now)

    def refused(self, worker: WorkerId, now: float) -> None:
        self._router.refused(worker, now)

    def settled(self, request: RequestId, now: float, *, again: bool = False) -> None:
        self._router.settled(request, now, again=again)

    @property
    def open_requests(self) -> int:
        return self._router.open_requests


class RoutedFleet(HostileFleet):
    """The same laws with prefill, decode and mixed workers behind the true router."""

    def router(self) -> WilfulRouter:
        self.true = TrueRouter()
        return self.true

    def role(self, worker: WorkerId) -> Role:
        return {"a": Role.PREFILL, "b": Role.DECODE, "c": Role.PREFILL}.get(worker, Role.MIXED)

    def teardown(self) -> None:
        super().teardown()
        assert self.true.open_requests == 0, "the router remembers what is over"


RoutedFleet.TestCase.settings = settings(deadline=None, max_examples=75, stateful_step_count=50)
TestLawsWithTheRouter = RoutedFleet.TestCase
