"""A drill's report as files: drill.json, and a time line of goodput with the faults marked."""

import json
from pathlib import Path

from antiphon.errors import UsageError

from .goodput_cost import window_s
from .plan import Load
from .report import DrillReport
from .timeline import timeline_svg


def write_report(folder: Path, report: DrillReport, load: Load) -> None:
    """Write drill.json and timeline.svg into `folder`, which is there. Raises `UsageError`."""
    svg = timeline_svg(
        report.calls,
        [(fault.at_s, f"{fault.kind} {fault.target}") for fault in report.faults],
        window_s=window_s(load),
        reference=None if report.resilience is None else report.resilience.reference,
    )
    try:
        (folder / "drill.json").write_text(json.dumps(report.as_mapping(), indent=2) + "\n")
        (folder / "timeline.svg").write_text(svg)
    except OSError as error:
        raise UsageError(f"{folder}: can't be written: {error.strerror}") from None
