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
from antiphon.core.number_text import number_text, plural
from antiphon.report import SavedSearch, save_search
from antiphon.types import LoadRun, Seconds

from .load_plan import LoadPlan
from .measured import Measured

_MOST_NOTES = 5
_ALL = 0.9
"""Of a planned rate: less did not come about, by more than chance."""
_FEW_CALLS = 100


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
        label = f"run {self.begun}, {number_text(rate_per_s)}/s: "
        return PlannedRun(plan=plan, folder=self._next_folder(rate_per_s), label=label)

    def ended(self, measured: Measured) -> None:
        """A run is over, and was not broken off. Mutates."""
        self._notes |= dict.fromkeys((*_not_offered(measured), *measured.run.notes))

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
        fails = "?" if found.fails_at_per_s is None else number_text(found.fails_at_per_s)
        return (
            f"after {plural(self.begun, 'run')}: {number_text(found.rate_per_s)}/s passes, "
            f"{fails}/s fails; "
            f"next {number_text(next_run.rate_per_s)}/s for {next_run.duration_s:.0f} s"
        )

    def _next_folder(self, rate_per_s: float) -> Path | None:
        """`rate-1.25`, and `rate-1.25-2` for the second run at that rate."""
        if self._folder is None:
            return None
        name = f"rate-{number_text(rate_per_s)}"
        self._at[name] += 1
        self._folders.append(name + (f"-{self._at[name]}" if self._at[name] > 1 else ""))
        return self._folder / self._folders[-1]


def _not_offered(measured: Measured) -> tuple[str, ...]:
    """A note on a run at a rate that did not come about."""
    planned, offered = measured.run.rate_per_s, measured.summary.offered_per_s
    if planned is None or measured.summary.calls < _FEW_CALLS or offered > _ALL * planned:
        return ()
    return (
        f"Of {number_text(planned)} requests/s that were planned {number_text(offered, 3)}/s came "
        "within the run: sessions lasted longer than it. Make the duration longer.",
    )
