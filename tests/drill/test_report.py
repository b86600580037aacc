from dataclasses import replace

import pytest

from antiphon.drill.report import DrillReport, Injected, recoveries
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
