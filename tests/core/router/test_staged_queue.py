"""Devices in a pipeline begin a prompt before the last one is through: their queues are shorter."""

import pytest
from router_kit import LinearTimes, info, report, request, router

from antiphon.core.costs import StagedTime, occupied_s
from antiphon.types import Role, Route


class FourStages(LinearTimes):
    """A prompt is through after 1 ms a token; the next one begins after a quarter of that."""

    def occupied_s(self, tokens: int, start: int = 0) -> float:
        return self.prefill_s(tokens, start) / 4


def test_only_devices_that_say_so_have_stages() -> None:
    assert isinstance(FourStages(), StagedTime)
    assert occupied_s(FourStages(), 100) == pytest.approx(0.025)
    assert occupied_s(LinearTimes(), 100) == pytest.approx(0.1)


@pytest.mark.parametrize("role", [Role.PREFILL, Role.MIXED])
def test_a_queue_takes_until_the_last_stage_is_free_and_a_prompt_all_of_its_time(
    role: Role,
) -> None:
    """A queue of three in a pipeline of four was taken to last four times as long as it does."""
    fleet = [info("w", role), *([info("d", Role.DECODE)] if role is Role.PREFILL else [])]
    waits: dict[type, float] = {}
    for times in (LinearTimes, FourStages):
        made = router(*fleet, times=times(), queue_s=9.0, conditional_split=False)
        for number in range(3):
            assert isinstance(made.choose(request(f"r{number}", 400), 0.0), Route)
        last = made.choose(request("last", 400), 0.0)
        assert isinstance(last, Route)
        waits[times] = last.predicted_ttft_s
    alone_s = 0.4
    assert waits[LinearTimes] == pytest.approx(3 * 0.4 + alone_s, abs=0.02)
    assert waits[FourStages] == pytest.approx(3 * 0.1 + alone_s, abs=0.02)


def test_prompts_of_others_wait_as_long() -> None:
    made = router(info("w", Role.MIXED), times=FourStages(), queue_s=9.0)
    report(made, "w", waiting=3, waiting_tokens=1200)
    [worker] = made.workers
    assert worker.load.queued_s == pytest.approx(0.3)


def test_a_worker_that_keeps_its_stages_busy_is_as_fast_as_it_is_told_to_be() -> None:
    """It was taken to be four times as fast, and a prompt alone with it."""
    made = router(info("w", Role.MIXED), times=FourStages(), queue_s=9.0)
    for number in range(1, 30):
        steps = 20 * number
        report(
            made,
            "w",
            now=0.1 * number,
            steps_total=steps,
            computed_tokens_total=400 * steps,
            busy_s_total=0.1 * steps,
        )
    [worker] = made.workers
    assert worker.pace.factor == pytest.approx(1.0, rel=0.1)
