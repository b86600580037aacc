"""What `antiphon sim` was told, checked: runs of scenarios, and where each is kept."""

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from antiphon.core.faults import check_times, expand, schedule_lines
from antiphon.core.goodput import ScaleRules
from antiphon.core.number_text import number_text
from antiphon.errors import UsageError
from antiphon.report import holds_run, runs_within
from antiphon.report.wording import plural
from antiphon.runs import LoadPlan
from antiphon.sim.fleet import Scenario, fleet_spec, load_plan, read_scenario, store_text

from .bench_search import SearchWords, aim_of
from .quantities import seconds
from .sim_jobs import SimJob

_SEED = re.compile(r"seed-\d+/")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimWords:
    """A command as it was written."""

    files: tuple[Path, ...]
    seed: int | None
    seeds: int
    rate: float | None
    duration: str | None
    find_goodput: bool
    min_rate: float | None
    max_rate: float | None
    tolerance: float | None
    folder: Path | None
    overwrite: bool


def jobs_of(words: SimWords) -> tuple[SimJob, ...]:
    """One run, or search, for each scenario and seed. Raises `UsageError` before any begins."""
    if words.overwrite and words.folder is None:
        raise UsageError("--overwrite: has no effect without -o")
    if words.rate is not None and not 0 < words.rate < math.inf:
        raise UsageError(f"--rate {number_text(words.rate)}: must be above 0 calls a second")
    names = [file.stem for file in words.files]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f'two scenarios are called "{name}": they could not be told apart')
    jobs = tuple(replace(job, number=number) for number, job in enumerate(_jobs(words)))
    for job in jobs:
        job.check()
        _check_alone(job.folder)
    for folder in _groups(words):
        _check_group(folder, words)
    return jobs


def _check_alone(folder: Path | None) -> None:
    """Raises `UsageError` if there are runs in folders of a single run's."""
    inner = [] if folder is None else runs_within(folder)
    if inner:
        raise UsageError(
            f"{folder}: holds runs in folders of their own ({', '.join(inner[:5])}), which a "
            "single run would be mixed up with: name another folder"
        )


def _groups(words: SimWords) -> Iterator[Path]:
    """Folders that are to have folders of runs in them, and no run themselves."""
    if words.folder is None:
        return
    if len(words.files) > 1:
        yield words.folder
    if words.seeds > 1:
        several = len(words.files) > 1
        yield from (words.folder / file.stem if several else words.folder for file in words.files)


def _check_group(folder: Path, words: SimWords) -> None:
    """Raises `UsageError` if what is kept there is of another kind: it would be mixed up."""
    if holds_run(folder):
        raise UsageError(
            f"{folder}: holds a single run, or a search, and several runs would be mixed up with "
            "it: name another folder"
        )
    of_scenarios = len(words.files) > 1 and folder == words.folder
    for name in runs_within(folder):
        if of_scenarios == (_SEED.fullmatch(name) is not None):
            one, other = ("seeds", "scenarios") if of_scenarios else ("scenarios", "seeds")
            raise UsageError(
                f"{folder}: holds runs of several {one} ({name}, …), and those of several {other} "
                "would be mixed up with them: name another folder"
            )


def _jobs(words: SimWords) -> Iterator[SimJob]:
    for file in words.files:
        scenario = read_scenario(file, words.seed)
        if words.duration is not None:
            scenario = _lasting(scenario, seconds(words.duration, "--duration"))
        for number in range(words.seeds):
            seed = scenario.seed + number
            yield _job(words, file, replace(scenario, seed=seed))


def _lasting(scenario: Scenario, duration_s: float) -> Scenario:
    """The warm-up stays, unless it would be more than half."""
    warmup_s = min(scenario.warmup_s, duration_s / 2)
    return replace(scenario, duration_s=duration_s, warmup_s=warmup_s)


def _job(words: SimWords, file: Path, scenario: Scenario) -> SimJob:
    plan = load_plan(scenario, scenario.seed, fleet_spec(scenario).devices)
    search = SearchWords(
        find_goodput=words.find_goodput,
        min_rate=words.min_rate,
        max_rate=words.max_rate,
        tolerance=words.tolerance,
        find_slo_scale=False,
        scales=None,
    )
    start = plan.rate_per_s if words.rate is None else words.rate
    aim = aim_of(search, plan, start)
    assert not isinstance(aim, ScaleRules)
    if words.rate is not None:
        plan = plan.at_rate(words.rate)
    return SimJob(
        number=0,
        name=file.stem,
        scenario=scenario,
        plan=plan,
        aim=aim,
        folder=_folder(words, file.stem, plan),
        overwrite=words.overwrite,
        command=_command(words, file, plan),
    )


def _folder(words: SimWords, name: str, plan: LoadPlan) -> Path | None:
    """One run has the folder for itself; several have folders in it."""
    if words.folder is None:
        return None
    folder = words.folder / name if len(words.files) > 1 else words.folder
    return folder / f"seed-{plan.seed}" if words.seeds > 1 else folder


def _command(words: SimWords, file: Path, plan: LoadPlan) -> str:
    """What to type to do it again where the scenario lies, wherever that is and this is kept."""
    parts = ["antiphon", "sim", file.name, "--seed", str(plan.seed)]
    options = {
        "--rate": words.rate,
        "--duration": words.duration,
        "--min-rate": words.min_rate,
        "--max-rate": words.max_rate,
        "--tolerance": words.tolerance,
    }
    for name, value in options.items():
        if value is not None:
            parts += [name, value if isinstance(value, str) else number_text(value, 15)]
    return shlex.join([*parts, *(["--find-goodput"] if words.find_goodput else [])])


# ── what it would be ─────────────────────────────────────────────────────────────────────────


def describe(job: SimJob) -> str:
    """The fleet, its load and its faults, for people."""
    scenario, plan = job.scenario, job.plan
    spec = fleet_spec(scenario)
    given = plan.rate_per_s
    rate = "the trace's own times" if given is None else f"{number_text(given)} calls/s"
    lines = [
        f"{scenario.title} (seed {plan.seed})",
        f"  model     {scenario.model}: {scenario.kv_bytes_per_token:,} bytes of KV a token, "
        f"context {scenario.context:,}",
        *(
            f"  pool      {pool.name}: {plural(pool.workers, f'{pool.role} worker')} of "
            f"{plural(pool.devices, 'device')}, KV of {pool.kv_tokens:,} tokens each, a "
            "prompt of 1,000 tokens takes "
            f"{pool.phases.prefill_s(1000) * 1e3:.0f} ms, a decode step of 32 such "
            f"{pool.phases.decode_step_s(32, 32_000) * 1e3:.1f} ms"
            for pool in spec.pools
        ),
        *([f"  store     {stores}"] if (stores := store_text(spec)) else []),
        f"  load      {plan.workload.description}",
        f"            {plan.arrivals.description}: {rate} for {number_text(plan.duration_s)} s, "
        f"the first {number_text(plan.warmup_s)} s count for nothing",
        *_fault_lines(scenario),
    ]
    return "\n".join(lines)


def _fault_lines(scenario: Scenario) -> Sequence[str]:
    check_times(scenario.faults, scenario.duration_s)
    faults = expand(scenario.faults, scenario.duration_s)
    lines = schedule_lines(faults, scenario.seed, scenario.workers)
    return [f"  fault     {line.strip()}" for line in lines]
