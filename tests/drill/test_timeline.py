"""The plot shows every fault, the same way each time, and also where there is little to show."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from antiphon.core.faults import CallOutcome
from antiphon.drill.plan import Load
from antiphon.drill.report import DrillReport
from antiphon.drill.report_folder import write_report
from antiphon.drill.timeline import timeline_svg
from antiphon.errors import UsageError

CALLS = [CallOutcome(at / 2, at / 2 + 0.2, at % 7 != 3) for at in range(60)]
FAULTS = [(3.0, "kill decode-0"), (3.1, "stop <b>&")]


def test_each_fault_is_named_and_the_same_input_is_the_same_text() -> None:
    svg = timeline_svg(CALLS, FAULTS, window_s=5.0, reference=0.9)
    assert svg == timeline_svg(CALLS, FAULTS, window_s=5.0, reference=0.9)
    texts = "".join(ElementTree.fromstring(svg).itertext())
    for _, name in FAULTS:
        assert name in texts
    assert "over the next 5 s" in texts


def test_a_load_without_calls_or_faults_is_drawn_too() -> None:
    ElementTree.fromstring(timeline_svg([], [], window_s=1.0, reference=None))


def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    report = DrillReport(asks=0, faults=(), findings=(), leftovers=(), growth=())
    write_report(tmp_path, report, Load())
    assert {file.name for file in tmp_path.iterdir()} == {"drill.json", "timeline.svg"}
    with pytest.raises(UsageError, match="can't be written"):
        write_report(tmp_path / "none", report, Load())
