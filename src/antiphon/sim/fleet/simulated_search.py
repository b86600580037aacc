"""Searches made of runs in virtual time, and how runs are kept."""

from pathlib import Path

from antiphon.core.goodput import (
    Attainment,
    GoodputSearch,
    RunAt,
    ScaleRules,
    SearchRules,
    SloScaleSearch,
    after_warmup,
)
from antiphon.report import RunWriter, SavedSearch, take_folder
from antiphon.runs import LoadPlan, Measured, SearchRuns

from .scenario import Scenario
from .scenario_fleet import fleet_spec
from .simulate import Looker, run_of, simulate


def keep(measured: Measured, folder: Path, *, overwrite: bool = False) -> None:
    """A run on disk, with its page, as `antiphon bench` leaves one. Raises `UsageError`."""
    with RunWriter(folder, measured.run, overwrite=overwrite) as writer:
        for record in measured.records:
            writer.add(record)
        if measured.whole:
            writer.finish(measured.run, measured.summary)
        else:
            writer.interrupted(measured.run)
    measured.draw(folder)


def simulated_search(
    scenario: Scenario,
    plan: LoadPlan,
    rules: SearchRules | ScaleRules,
    *,
    look: Looker = lambda _now, _line: None,
    folder: Path | None = None,
    overwrite: bool = False,
    command: str = "",
) -> tuple[SavedSearch, bool]:
    """What was found, and whether the search came to its end: `look` may stop it.

    Runs are kept in `folder`, and after each what is found by then. `plan.warmup_s` is that of each
    run. Raises `UsageError` for a plan without targets, and for a folder that can't be taken.
    """
    runs = SearchRuns(plan, rules, folder)
    if folder is not None:
        take_folder(folder, overwrite=overwrite)
    common = run_of(scenario, fleet_spec(scenario), plan, command=command)
    search = runs.search
    while isinstance(step := search.next(), RunAt):
        planned = runs.begin(step.rate_per_s, plan.warmup_s + step.duration_s)
        label = planned.label
        measured = simulate(
            scenario,
            planned.plan,
            command=command,
            look=lambda now, line, label=label: look(now, label + line),
        )
        if planned.folder is not None:
            keep(measured, planned.folder)
        if not measured.whole:
            return runs.found(common), False
        match search:
            case GoodputSearch():
                warmup_s, records = plan.warmup_s, measured.records
                attainment = Attainment.of(records, plan.slos, warmup_s=warmup_s)
                search.observe(step.rate_per_s, attainment)
            case SloScaleSearch():
                search.observe(after_warmup(measured.records, plan.warmup_s))
        runs.ended(measured)
        runs.keep(common)
    return runs.found(common), True
