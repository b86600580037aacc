"""A run that is over, with all that came of it."""

from dataclasses import dataclass
from pathlib import Path

from antiphon.host import write_whole
from antiphon.report import REPORT, RunSummary, run_page
from antiphon.types import CallRecord, LoadRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A run that is over. `whole`: nobody has interrupted it."""

    run: LoadRun
    records: tuple[CallRecord, ...]
    summary: RunSummary
    whole: bool = True

    def draw(self, folder: Path) -> None:
        """Write the run's page into its folder."""
        page = run_page(self.run, self.summary, self.records)
        write_whole(folder / REPORT, page.encode())
