"""What a router says of its workers' paces."""

import pytest
from router_kit import LinearTimes, health, info, report, router

from antiphon.types import Health, WorkerId

SLOW, NEW = info("slow"), info("new")


def test_paces_are_of_those_who_are_there() -> None:
    made = router(SLOW, NEW)
    assert made.paces() == {SLOW.id: 1.0, NEW.id: 1.0}
    step_s = 3 * LinearTimes().decode_step_s(1, 1000)
    for number in range(100):
        counts = {"steps_total": 100 * number, "computed_tokens_total": 100 * number}
        busy = {"busy_s_total": 100 * number * step_s}
        report(made, "slow", running=1, running_sequences=1, context_tokens=1000, **counts, **busy)
    assert made.paces() == {SLOW.id: pytest.approx(3.0, rel=0.05), NEW.id: 1.0}
    health(made, "slow", Health.LOST)
    assert made.paces() == {WorkerId("new"): 1.0}
