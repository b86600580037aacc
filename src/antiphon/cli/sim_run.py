"""Carries out the jobs of `antiphon sim`, shows how they go, and tells what came of them."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

import typer
from rich.text import Text

from antiphon.core.goodput import Goodput
from antiphon.core.number_text import number_text
from antiphon.errors import PeerError
from antiphon.report import (
    REPORT,
    OverSeeds,
    RunSummary,
    goodput_over_seeds,
    over_seeds,
    search_table,
    seeds_table,
    summary_table,
)
from antiphon.report.strict_json import encode_file
from antiphon.report.wording import plain, plural

from .bench_results import show, width
from .interrupted import INTERRUPTED, TERMINATED
from .progress import Progress, tell
from .sim_jobs import SimDone, SimJob, Stop, run_apart, run_here
from .sim_progress import SimProgress

_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """One of several runs, as JSON tells it."""

    scenario: str
    seed: int
    folder: str | None
    whole: bool
    summary: RunSummary | None
    goodput: Goodput | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _AllTold:
    """`interrupted`: not all came to their end; `over_seeds` are of those that did."""

    runs: tuple[_Told, ...]
    over_seeds: tuple[OverSeeds, ...]
    interrupted: bool


def run_jobs(jobs: Sequence[SimJob], processes: int, *, as_json: bool) -> int:
    """The exit code. What had come when a signal came is told.

    Raises `UsageError` for what can't be kept, `PeerError` if nothing was served.
    """
    stop = Stop()
    done: list[SimDone] = []
    with Progress(redraws_per_s=4.0) as progress, stop.by_signals(progress.log):
        shown = SimProgress(jobs, progress)
        apart = len(jobs) > 1 and processes > 1
        ended = (
            run_apart(jobs, processes, stop, shown.hear)
            if apart
            else run_here(jobs, stop, shown.hear)
        )
        for one in ended:
            done.append(one)
            shown.over(one.job)
    done.sort(key=lambda one: one.job.number)
    if done:
        _tell(done, jobs, as_json=as_json)
    if stop.signal is not None:
        return _CODES[stop.signal]
    _check_served(done)
    return 0


def _tell(done: Sequence[SimDone], jobs: Sequence[SimJob], *, as_json: bool) -> None:
    over, alone = _over(done), len(jobs) == 1
    missing = len(jobs) - sum(one.whole for one in done)
    if as_json and alone:
        typer.echo(encode_file(_value(done[0])).decode(), nl=False)
    elif as_json:
        told = tuple(map(_told, done))
        value = _AllTold(runs=told, over_seeds=over, interrupted=missing > 0)
        typer.echo(encode_file(value).decode(), nl=False)
    else:
        _show(done, alone, over)
        if missing and not alone:
            show(Text(_interrupted_text(jobs, over)))
    for one in done:
        if one.job.folder is not None:
            tell(f"Report: {one.job.folder}/{REPORT}", err=True)


def _show(done: Sequence[SimDone], alone: bool, over: Sequence[OverSeeds]) -> None:
    several_seeds = any(len(one.seeds) > 1 for one in over)
    if alone or not several_seeds:
        for one in done:
            if not alone:
                show(Text(plain(f"{one.run.title} ({one.job.name})")))
            if one.summary is not None:
                show(summary_table(one.run, one.summary, width=width()))
            elif one.search is not None and one.search.goodput is not None:
                show(search_table(one.search.goodput))
    if over and not alone:
        show(seeds_table(over))


def _interrupted_text(jobs: Sequence[SimJob], over: Sequence[OverSeeds]) -> str:
    """What the table, if there is one, is of."""
    whole = {one.scenario: one.seeds for one in over}
    parts = [
        f"{name}: {len(whole.get(name, ()))} of "
        f"{plural(sum(job.name == name for job in jobs), 'seed')}"
        for name in dict.fromkeys(job.name for job in jobs)
    ]
    what = "Only runs that came to their end are in the table" if over else "No run came to its end"
    return f"Interrupted. {what}: {'; '.join(parts)}."


def _over(done: Sequence[SimDone]) -> tuple[OverSeeds, ...]:
    found: list[OverSeeds] = []
    for name in dict.fromkeys(one.job.name for one in done):
        mine = [one for one in done if one.job.name == name and one.whole]
        seeds = [one.job.plan.seed for one in mine]
        summaries = [one.summary for one in mine if one.summary is not None]
        searches = [
            one.search.goodput
            for one in mine
            if one.search is not None and one.search.goodput is not None
        ]
        if summaries:
            found.append(over_seeds(name, seeds, summaries))
        elif searches:
            found.append(goodput_over_seeds(name, seeds, searches))
    return tuple(found)


def _value(one: SimDone) -> RunSummary | Goodput:
    """As `antiphon bench --json` has it."""
    found = one.summary or (one.search.goodput if one.search else None)
    assert found is not None
    return found


def _told(one: SimDone) -> _Told:
    return _Told(
        scenario=one.job.name,
        seed=one.job.plan.seed,
        folder=None if one.job.folder is None else str(one.job.folder),
        whole=one.whole,
        summary=one.summary,
        goodput=one.search.goodput if one.search else None,
    )


def _check_served(done: Sequence[SimDone]) -> None:
    for one in done:
        if one.summary is None:
            continue
        where = f"{one.job.name}, seed {one.job.plan.seed}"
        if not one.summary.calls:
            raise PeerError(
                f"{where}: no call was due after the warm-up of {number_text(one.run.warmup_s)} "
                "s, so nothing "
                "can be judged: let it last longer, or raise the rate"
            )
        if not one.summary.ok:
            worst = one.summary.failures[0]
            raise PeerError(
                f"{where}: all {one.summary.calls} calls failed, {worst.calls} of them as "
                f"{worst.kind}: {worst.example or worst.kind}"
            )
