"""Runs a search for goodput, or over targets: load at one rate after another, each run kept."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from antiphon.core.goodput import (
    Goodput,
    GoodputSearch,
    RunAt,
    ScaleRules,
    SearchRules,
    SloScaleSearch,
    check_targets,
)
from antiphon.report import SavedSearch, save_search
from antiphon.types import CallRecord, Seconds

from .goodput_search import find_goodput
from .load_plan import LoadPlan
from .sender import Sender, now_utc
from .slo_scale import find_slo_scale

_MOST_NOTES = 5


class Stopped(Exception):
    """The search was stopped. No error: `SearchRunner.found` has what was found by then."""


class SearchRunner:
    """One search. Its runs are of `plan`, at other rates, each with other requests.

    `plan.warmup_s` is that of each run. Runs are kept in `folder`, if there is one, and after each
    what is found by then.
    Raises `UsageError` for a plan without targets.
    """

    def __init__(
        self,
        plan: LoadPlan,
        rules: SearchRules | ScaleRules,
        sender: Sender,
        folder: Path | None,
    ) -> None:
        check_targets(plan.slos)
        self._plan = plan
        self._search: GoodputSearch | SloScaleSearch
        match rules:
            case SearchRules():
                self._search = GoodputSearch(rules)
            case ScaleRules():
                self._search = SloScaleSearch(rules, plan.slos)
        self._sender = sender
        self._folder = folder
        self._started_at = now_utc()
        self._at: Counter[str] = Counter()
        self._folders: list[str] = []
        self._notes: dict[str, None] = dict.fromkeys(plan.notes)
        self.runs = 0
        """Begun by now."""

    async def run(self) -> None:
        """Until it is found. Raises `Stopped`, and `PeerError` when nobody is there any more."""
        match self._search:
            case GoodputSearch() as search:
                await find_goodput(
                    search,
                    self._measure,
                    self._plan.slos,
                    warmup_s=self._plan.warmup_s,
                    on_progress=self._say,
                )
            case SloScaleSearch() as search:
                await find_slo_scale(
                    search,
                    self._measure,
                    warmup_s=self._plan.warmup_s,
                    on_progress=lambda _found, _next: self._keep(),
                )

    def found(self) -> SavedSearch:
        """What is known by now."""
        run = self._sender.begun(self._plan, self._started_at)
        run = replace(run, notes=tuple(self._notes)[:_MOST_NOTES])
        probes = tuple(self._folders)
        match self._search:
            case GoodputSearch() as search:
                return SavedSearch(run=run, goodput=search.result(), probes=probes)
            case SloScaleSearch() as search:
                return SavedSearch(run=run, slo_scale=search.result(), probes=probes)

    async def _measure(self, rate_per_s: float, duration_s: Seconds) -> Sequence[CallRecord]:
        """See `Measure`."""
        self.runs += 1
        plan = replace(
            self._plan.at_rate(rate_per_s),
            duration_s=duration_s,
            seed=self._plan.seed + self.runs,
        )
        folder = self._next_folder(rate_per_s)
        label = f"run {self.runs}, {rate_per_s:g}/s: "
        measured = await self._sender.measure(plan, folder, label=label)
        if folder is not None:
            measured.draw(folder)
        if not measured.whole:
            raise Stopped
        self._notes |= dict.fromkeys(measured.run.notes)
        return measured.records

    def _next_folder(self, rate_per_s: float) -> Path | None:
        """`rate-1.25`, and `rate-1.25-2` for the second run at that rate."""
        if self._folder is None:
            return None
        name = f"rate-{rate_per_s:g}"
        self._at[name] += 1
        self._folders.append(name + (f"-{self._at[name]}" if self._at[name] > 1 else ""))
        return self._folder / self._folders[-1]

    def _keep(self) -> None:
        """What is known by now, on disk: a process can be killed."""
        if self._folder is not None and self._folders:
            save_search(self._folder, self.found())

    def _say(self, found: Goodput, next_run: RunAt | None) -> None:
        self._keep()
        if found.probes and next_run is not None:
            fails = "?" if found.fails_at_per_s is None else f"{found.fails_at_per_s:g}"
            self._sender.watcher.log(
                f"after {self.runs} runs: {found.rate_per_s:g}/s passes, {fails}/s fails; "
                f"next {next_run.rate_per_s:g}/s for {next_run.duration_s:.0f} s"
            )
