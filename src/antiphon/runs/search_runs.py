"""The runs of one search: what each sends, where it is kept, and what is known by now."""

from collections import Counter
from dataclasses import dataclass, replace
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
from antiphon.types import LoadRun, Seconds

from .load_plan import LoadPlan
from .measured import Measured

_MOST_NOTES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run of a search. `folder`: where it is kept; None: nowhere. `label`: for who looks on."""

    plan: LoadPlan
    folder: Path | None
    label: str


class SearchRuns:
    """Runs of `plan`, at the rates that a search asks for, each with other requests.

    Whoever drives it asks `search` what to run, has it from `begin`, and tells both what came of
    it. `plan.warmup_s` is that of each run. With a `folder` runs have folders in it.
    Raises `UsageError` for a plan without targets.
    """

    def __init__(
        self, plan: LoadPlan, rules: SearchRules | ScaleRules, folder: Path | None
    ) -> None:
        check_targets(plan.slos)
        self.search: GoodputSearch | SloScaleSearch
        match rules:
            case SearchRules():
                self.search = GoodputSearch(rules)
            case ScaleRules():
                self.search = SloScaleSearch(rules, plan.slos)
        self.plan = plan
        self.begun = 0
        """Runs by now."""
        self._folder = folder
        self._at: Counter[str] = Counter()
        self._folders: list[str] = []
        self._notes: dict[str, None] = dict.fromkeys(plan.notes)

    def begin(self, rate_per_s: float, duration_s: Seconds) -> PlannedRun:
        """The next run: so long, its warm-up included. Mutates."""
        self.begun += 1
        plan = replace(
            self.plan.at_rate(rate_per_s),
            duration_s=duration_s,
            seed=self.plan.seed + self.begun,
        )
        label = f"run {self.begun}, {rate_per_s:g}/s: "
        return PlannedRun(plan=plan, folder=self._next_folder(rate_per_s), label=label)

    def ended(self, measured: Measured) -> None:
        """A run is over, and was not broken off. Mutates."""
        self._notes |= dict.fromkeys(measured.run.notes)

    def found(self, run: LoadRun) -> SavedSearch:
        """What is known by now; `run` is what its runs have in common."""
        run = replace(run, notes=tuple(self._notes)[:_MOST_NOTES])
        probes = tuple(self._folders)
        match self.search:
            case GoodputSearch() as search:
                return SavedSearch(run=run, goodput=search.result(), probes=probes)
            case SloScaleSearch() as search:
                return SavedSearch(run=run, slo_scale=search.result(), probes=probes)

    def keep(self, run: LoadRun) -> None:
        """What is known by now, on disk: a process can be killed."""
        if self._folder is not None and self._folders:
            save_search(self._folder, self.found(run))

    def line(self, found: Goodput, next_run: RunAt) -> str:
        """How a search for goodput stands: for who looks on."""
        fails = "?" if found.fails_at_per_s is None else f"{found.fails_at_per_s:g}"
        return (
            f"after {self.begun} runs: {found.rate_per_s:g}/s passes, {fails}/s fails; "
            f"next {next_run.rate_per_s:g}/s for {next_run.duration_s:.0f} s"
        )

    def _next_folder(self, rate_per_s: float) -> Path | None:
        """`rate-1.25`, and `rate-1.25-2` for the second run at that rate."""
        if self._folder is None:
            return None
        name = f"rate-{rate_per_s:g}"
        self._at[name] += 1
        self._folders.append(name + (f"-{self._at[name]}" if self._at[name] > 1 else ""))
        return self._folder / self._folders[-1]
