"""Runs of scenarios, each in a process of its own where there are several."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

from antiphon.core.goodput import SearchRules
from antiphon.host import end_with_parent
from antiphon.report import RunSummary, SavedSearch, check_folder
from antiphon.runs import LoadPlan
from antiphon.sim.fleet import Scenario, Stopped, keep, simulate, simulated_search
from antiphon.types import LoadRun, Seconds

_TOLD_EVERY_S, _LOOKED_EVERY_S = 0.3, 0.2
_STOPPING = (signal.SIGINT, signal.SIGTERM)

News: TypeAlias = tuple[int, Seconds, str]
"""The number of a job, how many of its seconds are over, and how it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimJob:
    """One run, or one search by `aim`. `name`: the scenario's. `folder` None: nothing is kept."""

    number: int
    name: str
    scenario: Scenario
    plan: LoadPlan
    aim: SearchRules | None = None
    folder: Path | None = None
    overwrite: bool = False
    command: str = ""

    def check(self) -> None:
        """Raises `UsageError` if its folder can't be taken."""
        if self.folder is not None:
            check_folder(self.folder, overwrite=self.overwrite)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimDone:
    """What came of a job: a summary, or a search. `whole`: it was not broken off."""

    job: SimJob
    run: LoadRun
    summary: RunSummary | None = None
    search: SavedSearch | None = None
    whole: bool = True


def carry_out(job: SimJob, look: Callable[[Seconds, str], None]) -> SimDone:
    """Do it here. Raises `UsageError` if it can't be kept."""
    if job.aim is not None:
        search, whole = simulated_search(
            job.scenario,
            job.plan,
            job.aim,
            look=look,
            folder=job.folder,
            overwrite=job.overwrite,
            command=job.command,
        )
        return SimDone(job=job, run=search.run, search=search, whole=whole)
    measured = simulate(job.scenario, job.plan, command=job.command, look=look)
    if job.folder is not None:
        keep(measured, job.folder, overwrite=job.overwrite)
    return SimDone(job=job, run=measured.run, summary=measured.summary, whole=measured.whole)


class Stop:
    """Whether what runs is to end, and which signal said so."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.on_stop: Callable[[], None] = lambda: None

    def __call__(self) -> bool:
        """Whether it is."""
        return self.signal is not None

    @contextmanager
    def by_signals(self, log: Callable[[str], None]) -> Iterator[None]:
        """Ctrl-C and SIGTERM say it meanwhile; the second one ends the process as elsewhere."""
        before = {one: signal.getsignal(one) for one in _STOPPING}

        def came(number: int, _frame: Any) -> None:
            for one in _STOPPING:
                signal.signal(one, before[one])
            self.signal = signal.Signals(number)
            self.on_stop()
            log("Stopping: what has ended is kept. The same again drops it.")

        for one in _STOPPING:
            signal.signal(one, came)
        try:
            yield
        finally:
            for one in _STOPPING:
                signal.signal(one, before[one])


def run_here(jobs: Sequence[SimJob], stop: Stop, hear: Callable[[News], None]) -> Iterator[SimDone]:
    """One after another, in this process."""
    for job in jobs:
        if stop():
            return
        number = job.number

        def look(now: Seconds, line: str, number: int = number) -> None:
            hear((number, now, line))
            if stop():
                raise Stopped

        yield carry_out(job, look)


def run_apart(
    jobs: Sequence[SimJob], processes: int, stop: Stop, hear: Callable[[News], None]
) -> Iterator[SimDone]:
    """In so many processes, in order of their ends. After a stop nothing new begins.

    Raises what a job raised, once those that run have ended.
    """
    context = get_context("spawn")
    news, stopped = context.SimpleQueue(), context.Event()
    stop.on_stop = stopped.set
    with ProcessPoolExecutor(
        min(processes, len(jobs)),
        mp_context=context,
        initializer=_begin_process,
        initargs=(news, stopped, os.getpid()),
    ) as pool:
        waiting: set[Future[SimDone]] = {pool.submit(_in_process, job) for job in jobs}
        try:
            while waiting:
                over, waiting = wait(waiting, _LOOKED_EVERY_S, FIRST_COMPLETED)
                while not news.empty():
                    hear(news.get())
                if stop():
                    waiting = {one for one in waiting if not one.cancel()}
                for one in sorted(over, key=_number):
                    if not one.cancelled():
                        yield one.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _number(over: Future[SimDone]) -> int:
    if over.cancelled() or over.exception() is not None:
        return -1
    return over.result().job.number


# ── in a process of the pool ─────────────────────────────────────────────────────────────────

_process: dict[str, Any] = {}


def _begin_process(news: Any, stopped: Any, parent: int) -> None:
    end_with_parent()
    _process.update(news=news, stopped=stopped, parent=parent, told_at=0.0)


def _in_process(job: SimJob) -> SimDone:
    def look(now: Seconds, line: str) -> None:
        if _process["stopped"].is_set() or os.getppid() != _process["parent"]:
            raise Stopped
        if time.monotonic() - _process["told_at"] >= _TOLD_EVERY_S:
            _process["told_at"] = time.monotonic()
            _process["news"].put((job.number, now, line))

    return carry_out(job, look)
