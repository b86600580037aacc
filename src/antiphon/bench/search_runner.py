"""Runs a search for goodput, or over targets: load at one rate after another, each run kept."""

from collections.abc import Sequence
from pathlib import Path

from antiphon.core.goodput import (
    Goodput,
    GoodputSearch,
    RunAt,
    ScaleRules,
    SearchRules,
    SloScaleSearch,
)
from antiphon.report import SavedSearch
from antiphon.runs import LoadPlan, SearchRuns
from antiphon.types import CallRecord, LoadRun, Seconds

from .goodput_search import find_goodput
from .sender import Sender, now_utc
from .slo_scale import find_slo_scale


class Stopped(Exception):
    """The search was stopped. No error: `SearchRunner.found` has what was found by then."""


class SearchRunner:
    """One search of `SearchRuns` against a server. Runs are kept in `folder`, if there is one, and
    after each what is found by then.

    Raises `UsageError` for a plan without targets.
    """

    def __init__(
        self,
        plan: LoadPlan,
        rules: SearchRules | ScaleRules,
        sender: Sender,
        folder: Path | None,
    ) -> None:
        self._all = SearchRuns(plan, rules, folder)
        self._sender = sender
        self._started_at = now_utc()

    @property
    def runs(self) -> int:
        """Begun by now."""
        return self._all.begun

    async def run(self) -> None:
        """Until it is found. Raises `Stopped`, and `PeerError` when nobody is there any more."""
        plan = self._all.plan
        match self._all.search:
            case GoodputSearch() as search:
                await find_goodput(
                    search,
                    self._measure,
                    plan.slos,
                    warmup_s=plan.warmup_s,
                    on_progress=self._say,
                )
            case SloScaleSearch() as search:
                await find_slo_scale(
                    search,
                    self._measure,
                    warmup_s=plan.warmup_s,
                    on_progress=lambda _found, _next: self._keep(),
                )

    def found(self) -> SavedSearch:
        """What is known by now."""
        return self._all.found(self._run())

    def _run(self) -> LoadRun:
        return self._sender.begun(self._all.plan, self._started_at)

    async def _measure(self, rate_per_s: float, duration_s: Seconds) -> Sequence[CallRecord]:
        """See `Measure`."""
        planned = self._all.begin(rate_per_s, duration_s)
        measured = await self._sender.measure(planned.plan, planned.folder, label=planned.label)
        if planned.folder is not None:
            measured.draw(planned.folder)
        if not measured.whole:
            raise Stopped
        self._all.ended(measured)
        return measured.records

    def _keep(self) -> None:
        self._all.keep(self._run())

    def _say(self, found: Goodput, next_run: RunAt | None) -> None:
        self._keep()
        if found.probes and next_run is not None:
            self._sender.watcher.log(self._all.line(found, next_run))
