from dataclasses import replace

import pytest

from antiphon.core.faults import Impact, Resilience
from antiphon.drill.report import (
    DrillReport,
    Injected,
    NotInjected,
    Repeats,
    recoveries,
    repeats,
)
from antiphon.drill.target import Attempt

BEGAN_AT = 1000.0
FAULT = Injected(
    kind="kill",
    target="decode-0",
    role="decode",
    pid=7,
    at_s=5.0,
    detected_s=0.5,
    back_s=3.0,
)
AGAIN = Attempt(
    request="r",
    number=2,
    workers_before=("prefill-0", "decode-0"),
    began_at=BEGAN_AT + 5.25,
    first_token_at=BEGAN_AT + 6.0,
)


def test_an_attempt_after_one_that_the_fault_ended() -> None:
    (one,) = recoveries([AGAIN], [FAULT], BEGAN_AT)
    assert (one.request, one.worker) == ("r", "decode-0")
    assert (one.detection_s, one.recompute_s) == (0.25, 0.75)


@pytest.mark.parametrize(
    "other",
    [
        replace(AGAIN, workers_before=("prefill-0", "decode-1")),
        replace(AGAIN, began_at=BEGAN_AT + 4.0),
        replace(AGAIN, began_at=BEGAN_AT + 5.75),
        replace(AGAIN, first_token_at=None),
    ],
    ids=["of other workers", "before the fault", "after its detection", "without a token"],
)
def test_what_is_no_recovery_from_the_fault(other: Attempt) -> None:
    assert recoveries([other], [FAULT], BEGAN_AT) == ()


def test_who_was_not_given_up_interrupted_nothing() -> None:
    assert recoveries([AGAIN], [replace(FAULT, detected_s=None)], BEGAN_AT) == ()


def test_of_two_faults_at_once_it_is_the_one_whose_victim_had_the_request() -> None:
    """Not simply the newest."""
    newer = replace(FAULT, target="decode-1", at_s=5.1)
    (one,) = recoveries([AGAIN], [FAULT, newer], BEGAN_AT)
    assert one.worker == "decode-0"


def test_lines_say_who_was_given_up_and_who_was_not() -> None:
    spared = replace(FAULT, kind="stop", detected_s=None, back_s=None)
    report = DrillReport(asks=1, faults=(FAULT, spared), findings=(), leftovers=(), growth=())
    text = "\n".join(report.lines())
    assert "kill decode-0 (pid 7): given up after 0.50 s, back after 3.00 s" in text
    assert "stop decode-0 (pid 7): not given up, never back" in text


def test_without_a_request_log_nobody_claims_that_nothing_was_interrupted() -> None:
    report = DrillReport(
        asks=1, faults=(FAULT,), findings=(), leftovers=(), growth=(), recoveries=None
    )
    assert not any("no request was interrupted" in line for line in report.lines())
    assert report.passed
    assert any(
        "no request was interrupted" in line for line in replace(report, recoveries=()).lines()
    )


QUIET = DrillReport(asks=9, faults=(FAULT,), findings=(), leftovers=(), growth=())


def test_a_fault_of_its_own_moment_that_was_not_done_fails_the_plan_one_of_many_does_not() -> None:
    missed = NotInjected(
        kind="kill", target="random", entry=2, why="nobody could be spared", fatal=False
    )
    assert QUIET.passed
    report = replace(QUIET, not_injected=(missed, missed))
    assert report.passed
    assert "  fault 2, kill random: 2 times not done: nobody could be spared" in report.lines()
    assert not replace(QUIET, not_injected=(replace(missed, fatal=True),)).passed
    assert not replace(QUIET, faults=()).passed


def test_what_was_done_again_counts_from_the_loads_begin() -> None:
    again = replace(AGAIN, computed_tokens=30)
    third = replace(again, number=3, computed_tokens=12)
    earlier = replace(again, began_at=BEGAN_AT - 1.0)
    assert repeats([again, third, earlier], BEGAN_AT) == Repeats(requests=1, wasted_tokens=42)


def test_lines_say_what_a_fault_cost() -> None:
    def line(impact: Impact) -> str:
        cost = Resilience(reference=0.9, lost_calls=2.5, lost_share=0.25, impacts=(impact,))
        lines = replace(QUIET, resilience=cost).lines()
        assert any("2.5 of 9 calls lost (25.0%) against 90%" in one for one in lines)
        return next(one for one in lines if "decode-0" in one)

    assert "goodput at 95 % after 1.50 s, 2.0 calls lost" in line(Impact(5.0, 2.0, 1.5))
    assert "no goodput lost" in line(Impact(5.0, 0.0, 0.0))
    assert "not within 95 % before the next fault" in line(Impact(5.0, 2.0, None))
    assert "no call before the next fault" in line(Impact(5.0, 0.0, None))


def test_calls_are_not_part_of_the_json() -> None:
    tree = QUIET.as_mapping()
    assert tree["passed"] is True
    assert "calls" not in tree
