"""What `antiphon sim` was told, checked: runs of scenarios, and where each is kept."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from antiphon.core.faults import check_times, expand, schedule_lines
from antiphon.core.goodput import ScaleRules
from antiphon.errors import UsageError
from antiphon.runs import LoadPlan
from antiphon.sim.fleet import Scenario, fleet_spec, load_plan, read_scenario, store_text

from .bench_search import SearchWords, aim_of
from .quantities import seconds
from .sim_jobs import SimJob


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
        raise UsageError(f"--rate {words.rate:g}: must be above 0 calls a second")
    names = [file.stem for file in words.files]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f'two scenarios are called "{name}": they could not be told apart')
    jobs = tuple(replace(job, number=number) for number, job in enumerate(_jobs(words)))
    for job in jobs:
        job.check()
    return jobs


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
    """What to type to do it again, wherever it is kept."""
    parts = ["antiphon", "sim", str(file), "--seed", str(plan.seed)]
    options = {
        "--rate": words.rate,
        "--duration": words.duration,
        "--min-rate": words.min_rate,
        "--max-rate": words.max_rate,
        "--tolerance": words.tolerance,
    }
    for name, value in options.items():
        if value is not None:
            parts += [name, value if isinstance(value, str) else f"{value:g}"]
    return shlex.join([*parts, *(["--find-goodput"] if words.find_goodput else [])])


# ── what it would be ─────────────────────────────────────────────────────────────────────────


def describe(job: SimJob) -> str:
    """The fleet, its load and its faults, for people."""
    scenario, plan = job.scenario, job.plan
    spec = fleet_spec(scenario)
    rate = "the trace's own times" if plan.rate_per_s is None else f"{plan.rate_per_s:.6g} calls/s"
    lines = [
        f"{scenario.title} (seed {plan.seed})",
        f"  model     {scenario.model}: {scenario.kv_bytes_per_token:,} bytes of KV a token, "
        f"context {scenario.context:,}",
        *(
            f"  pool      {pool.name}: {pool.workers} {pool.role} workers of {pool.devices} "
            f"devices, KV of {pool.kv_tokens:,} tokens each, a prompt of 1,000 tokens takes "
            f"{pool.phases.prefill_s(1000) * 1e3:.0f} ms, a decode step of 32 such "
            f"{pool.phases.decode_step_s(32, 32_000) * 1e3:.1f} ms"
            for pool in spec.pools
        ),
        *([f"  store     {stores}"] if (stores := store_text(spec)) else []),
        f"  load      {plan.workload.description}",
        f"            {plan.arrivals.description}: {rate} for {plan.duration_s:g} s, "
        f"the first {plan.warmup_s:g} s count for nothing",
        *_fault_lines(scenario),
    ]
    return "\n".join(lines)


def _fault_lines(scenario: Scenario) -> Sequence[str]:
    check_times(scenario.faults, scenario.duration_s)
    faults = expand(scenario.faults, scenario.duration_s)
    lines = schedule_lines(faults, scenario.seed, scenario.workers)
    return [f"  fault     {line.strip()}" for line in lines]
