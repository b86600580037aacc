"""A search that runs, without a server: what it asks for, keeps, and tells when it is stopped."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from antiphon.bench import LoadLimits, Sender, Server
from antiphon.bench.search_runner import SearchRunner, Stopped
from antiphon.core.goodput import NO_TARGETS, ScaleRules, SearchRules, Slos, StopReason
from antiphon.errors import UsageError
from antiphon.report import open_search, summarise
from antiphon.runs import LoadPlan, Measured
from antiphon.types import CallRecord, Slo
from antiphon.workload import Poisson, parse_workload

KNEE_PER_S = 10.0
SLOS = (("", Slo(ttft_s=1.0, tpot_s=1.0)),)
RULES = SearchRules(start_per_s=4.0, tolerance=0.1, run_s=10.0, least_calls=20)


class Listener:
    is_live = False

    def __init__(self) -> None:
        self.heard: list[str] = []

    def say(self, line: str) -> None:
        self.heard.append(line)

    log = say


class Scripted:
    """In the place of a `Sender`: calls are answered at once below the knee, too late above it."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.plans: list[LoadPlan] = []
        self.folders: list[Path | None] = []
        self.watcher = Listener()
        self._stop_at = stop_at
        self._sender = Sender(
            server=Server(url="http://127.0.0.1:9", model="m"),
            limits=LoadLimits(),
            count_tokens=None,
            watcher=self.watcher,
            stop=asyncio.Event(),
        )
        self.begun = self._sender.begun

    async def measure(self, plan: LoadPlan, folder: Path | None, *, label: str) -> Measured:
        del label
        self.plans.append(plan)
        self.folders.append(folder)
        assert plan.rate_per_s is not None
        ttft_s = 0.1 if plan.rate_per_s <= KNEE_PER_S else 5.0
        records = tuple(
            call(number, one.at_s, ttft_s) for number, one in enumerate(plan.sessions())
        )
        run = replace(self.begun(plan, ""), notes=(f"run {len(self.plans)}",))
        return Measured(
            run=run,
            records=records,
            summary=summarise(run, records),
            whole=len(self.plans) != self._stop_at,
        )


def call(number: int, due_s: float, ttft_s: float) -> CallRecord:
    return CallRecord(
        number=number,
        session=number,
        turn=0,
        due_at_s=due_s,
        sent_at_s=due_s,
        token_at_s=(due_s + ttft_s,),
        ended_at_s=due_s + ttft_s,
        output_tokens=1,
    )


def plan_of() -> LoadPlan:
    return LoadPlan(
        workload=parse_workload("fixed:input=8,output=1"),
        arrivals=Poisson(1.0),
        calls_per_session=1.0,
        duration_s=11.0,
        warmup_s=1.0,
        slos=SLOS,
        seed=7,
    )


def runner(scripted: Scripted, rules: Any = RULES, folder: Path | None = None) -> SearchRunner:
    return SearchRunner(plan_of(), rules, cast(Sender, scripted), folder)


async def test_goodput_is_found_by_runs_that_are_all_different() -> None:
    scripted = Scripted()
    search = runner(scripted)
    await search.run()
    found = search.found().goodput
    assert found is not None
    assert found.stopped is StopReason.FOUND
    assert found.rate_per_s <= KNEE_PER_S < found.rate_per_s * 1.1
    assert search.runs == len(scripted.plans) == sum(probe.runs for probe in found.probes)
    assert len({plan.seed for plan in scripted.plans}) == search.runs
    assert plan_of().seed not in {plan.seed for plan in scripted.plans}
    assert all(plan.duration_s >= 11.0 and plan.warmup_s == 1.0 for plan in scripted.plans)
    assert "passes" in scripted.watcher.heard[-1]


async def test_each_run_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Path] = []
    monkeypatch.setattr(Measured, "draw", lambda _self, folder: drawn.append(folder))
    scripted = Scripted()
    search = runner(scripted, folder=tmp_path)
    await search.run()
    assert drawn == scripted.folders
    assert len(set(drawn)) == search.runs
    names = [folder.name for folder in drawn]
    assert names[0] == "rate-4"
    assert any(name.endswith("-2") for name in names)
    assert list(search.found().probes) == names


async def test_what_was_found_before_it_was_stopped_is_not_lost() -> None:
    scripted = Scripted(stop_at=3)
    search = runner(scripted)
    with pytest.raises(Stopped):
        await search.run()
    found = search.found()
    assert found.goodput is not None
    assert found.goodput.stopped is StopReason.UNFINISHED
    assert found.goodput.rate_per_s == 4.0
    assert found.run.notes == ("run 1", "run 2")


async def test_what_was_found_is_on_disk_before_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed tells nothing any more."""
    monkeypatch.setattr(Measured, "draw", lambda _self, _folder: None)
    search = runner(Scripted(stop_at=3), folder=tmp_path)
    with pytest.raises(Stopped):
        await search.run()
    kept = open_search(tmp_path)
    assert kept.probes == ("rate-4", "rate-4-2")
    assert kept.goodput is not None
    assert [(probe.rate_per_s, probe.runs) for probe in kept.goodput.probes] == [(4.0, 2)]
    assert kept.goodput.stopped is StopReason.UNFINISHED


async def test_the_tightest_targets() -> None:
    scripted = Scripted()
    rules = ScaleRules(rate_per_s=5.0, run_s=20.0, scales=(0.05, 1.0))
    search = runner(scripted, rules)
    await search.run()
    found = search.found().slo_scale
    assert found is not None
    assert found.tightest.value == pytest.approx(0.1)
    assert [point.attainment.both().value for point in found.curve] == [0.0, 1.0]
    assert rates(scripted.plans) == [pytest.approx(5.0)] * search.runs


def rates(plans: Sequence[LoadPlan]) -> list[float | None]:
    return [plan.rate_per_s for plan in plans]


@pytest.mark.parametrize("slos", [(), (("", NO_TARGETS),), (("", NO_TARGETS), ("a", NO_TARGETS))])
@pytest.mark.parametrize("rules", [RULES, ScaleRules(rate_per_s=1.0)])
def test_a_search_without_targets_is_refused(slos: Slos, rules: SearchRules | ScaleRules) -> None:
    plan = LoadPlan(
        workload=parse_workload("fixed:input=8,output=4"),
        arrivals=Poisson(rate_per_s=1.0),
        calls_per_session=1,
        duration_s=10.0,
        slos=slos,
    )
    with pytest.raises(UsageError, match="a search needs targets"):
        SearchRunner(plan, rules, cast("Sender", Scripted()), None)
