"""A router of one worker: it has each request, while it is well."""

import pytest
from fleet_kit import offer_of, worker_info

from antiphon.core.requests import SoleWorker
from antiphon.types import (
    Health,
    HealthChanged,
    Hold,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    Route,
    SamplingParams,
    WorkerId,
    WorkerJoined,
)

ASKED = Request(id=RequestId("r"), prompt=(1, 2), sampling=SamplingParams(seed=0))


def router(health: Health) -> SoleWorker:
    one = SoleWorker(WorkerId("p"), hold_s=0.5)
    one.observe(WorkerJoined(worker_info("p")), 0.0)
    one.observe(HealthChanged(WorkerId("other"), Health.LOST), 1.0)
    one.observe(HealthChanged(WorkerId("p"), health), 2.0)
    return one


def test_while_it_is_well_it_has_all() -> None:
    chosen = router(Health.JOINED).choose(ASKED, 3.0)
    assert isinstance(chosen, Route)
    assert (chosen.prefill, chosen.decode) == (None, "p")


@pytest.mark.parametrize("health", [Health.SUSPECT, Health.DRAINING])
def test_requests_wait_while_it_may_come_back(health: Health) -> None:
    held = router(health).choose(ASKED, 3.0)
    assert isinstance(held, Hold)
    assert held.ask_again_at == 3.5


def test_without_it_nobody_serves() -> None:
    for one in (SoleWorker(WorkerId("p")), router(Health.LOST)):
        refused = one.choose(ASKED, 3.0)
        assert isinstance(refused, Rejected)
        assert refused.reason is RejectReason.NO_WORKER


def test_nobody_takes_what_it_offers() -> None:
    refused = router(Health.JOINED).choose_decode(offer_of(ASKED, worker_info("p")), ASKED, 3.0)
    assert isinstance(refused, Rejected)
    assert router(Health.JOINED).in_vain(ASKED, 3.0) is None
