"""The fleet and the load of a scenario, built."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from antiphon.core.costs import PhaseTime, TransferTime
from antiphon.core.faults import FaultPlan
from antiphon.core.number_text import number_text
from antiphon.errors import UsageError
from antiphon.perf import LinkTime, OverlappedTransfer, profiled_device
from antiphon.perf.hardware import Deployment, Parallelism, device_of, shape_of
from antiphon.perf.published_times import published_times
from antiphon.runs import LoadPlan, plan_load
from antiphon.types import Role, Seconds
from antiphon.workload import OwnTimes, Trace, TraceRow, Workload

from ..role_phases import RolePhases
from ..virtual_cluster import Expected
from .fleet import FleetSpec, Pool
from .scenario import PoolPlan, ProfiledTimes, PublishedTimes, RooflineTimes, Scenario
from .store_plan import StorePlan
from .token_sessions import TokenSession, token_sessions
from .trace_sessions import TraceLoad, trace_sessions

_PUBLISHED_ON = "a100"
_MOST_BLOCKS = 50_000_000
"""What all stores may have room for: a block that is there takes some 500 bytes."""


def fleet_spec(scenario: Scenario, faults: FaultPlan | None = None) -> FleetSpec:
    """The fleet. Raises `UsageError` for what can't be: a model that does not fit its devices."""
    pools = tuple(_pool(scenario, plan) for plan in scenario.pools)
    phases = RolePhases(_first(pools, Role.PREFILL), _first(pools, Role.DECODE))
    transfer = _transfer(scenario, phases)
    return FleetSpec(
        pools=pools,
        config=scenario.config,
        expected=Expected(phases, transfer),
        transfer=transfer,
        kv_bytes_per_token=scenario.kv_bytes_per_token,
        max_model_len=scenario.context,
        faults=faults or FaultPlan(scenario.seed),
        store=_store(scenario),
    )


def _first(pools: Iterable[Pool], role: Role) -> PhaseTime:
    """Of the first pool that does this phase, for whom routers take all that do."""
    return next(pool.phases for pool in pools if pool.role in (role, Role.MIXED))


def _transfer(scenario: Scenario, phases: PhaseTime) -> TransferTime:
    """What of a hand-over nothing hides."""
    link = LinkTime(setup_s=scenario.link.setup_s, bytes_per_s=scenario.link.bytes_per_s)
    if not scenario.link.layerwise:
        return link
    return OverlappedTransfer(
        link=link,
        prefill=phases,
        layers=shape_of(scenario.model).layers,
        kv_bytes_per_token=scenario.kv_bytes_per_token,
    )


def _store(scenario: Scenario) -> StorePlan | None:
    plan, kv = scenario.store, scenario.config.kv
    if plan is None or not plan.host_bytes:
        return plan
    if not kv.prefix_cache:
        raise UsageError("[store] needs kv.prefix_cache = true: without it blocks have no names")
    block_bytes = kv.block_tokens * scenario.kv_bytes_per_token
    if not plan.has_room(block_bytes):
        raise UsageError(
            f"[store] gigabytes: {number_text(plan.host_bytes / 1e9)} GB have no room for a block "
            "of "
            f"{kv.block_tokens} tokens, which takes {number_text(block_bytes / 1e9, 2)} GB: give "
            "more, or 0"
        )
    hosts = plan.hosts(len(scenario.workers))
    blocks = hosts * (plan.host_bytes + plan.ssd_bytes) // block_bytes
    if blocks > _MOST_BLOCKS:
        raise UsageError(
            f"[store] gigabytes: {blocks:,} blocks on {hosts} hosts are more than the "
            f"{_MOST_BLOCKS:,} that are simulated: give less, or make kv.block_tokens larger"
        )
    return plan


def _pool(scenario: Scenario, plan: PoolPlan) -> Pool:
    step_tokens = plan.scheduler.max_batched_tokens
    kv_tokens: int | None = None
    devices = 1
    match plan.times:
        case RooflineTimes() as asked:
            step_time = phases = _deployment(scenario.model, asked, step_tokens)
            kv_tokens, devices = step_time.kv_tokens, step_time.parallelism.devices
        case PublishedTimes(tensor=tensor, pipeline=pipeline):
            step_time = phases = published_times(scenario.model, tensor, pipeline)
            devices = tensor * pipeline
            kv_tokens = step_time.kv_tokens
            if kv_tokens is None and plan.kv_tokens is None:
                same = RooflineTimes(device=_PUBLISHED_ON, tensor=tensor, pipeline=pipeline)
                kv_tokens = _deployment(scenario.model, same, step_tokens).kv_tokens
        case ProfiledTimes(file=file):
            step_time = phases = profiled_device(file, step_tokens=step_tokens)
    if kv_tokens is None or plan.kv_tokens is not None:
        kv_tokens = plan.kv_tokens
    assert kv_tokens is not None
    page_tokens = scenario.config.kv.page_tokens
    if kv_tokens < page_tokens:
        raise UsageError(f"pool {plan.name}: {kv_tokens} tokens of KV are less than a page")
    return Pool(
        name=plan.name,
        role=plan.role,
        workers=plan.workers,
        step_time=step_time,
        phases=phases,
        kv_tokens=kv_tokens,
        devices=devices,
        scheduler=plan.scheduler,
    )


def _deployment(model: str, times: RooflineTimes, step_tokens: int) -> Deployment:
    return Deployment(
        model=shape_of(model),
        device=device_of(times.device),
        parallelism=Parallelism(tensor=times.tensor, pipeline=times.pipeline),
        weight_bytes=times.weight_bits / 8,
        kv_bytes=times.kv_bits / 8,
        step_tokens=step_tokens,
    )


# ── what users send ──────────────────────────────────────────────────────────────────────────


def load_plan(scenario: Scenario, seed: int, devices: int = 1) -> LoadPlan:
    """The load. Raises `UsageError`, also for a file that can't be read or has nothing to send."""
    users = scenario.users
    plan = plan_load(
        users.workload,
        arrivals=users.arrivals,
        rate_per_s=users.rate_per_s,
        duration_s=scenario.duration_s,
        slos=users.slos,
        devices=devices,
        seed=seed,
        title=scenario.title,
    )
    return replace(plan, warmup_s=scenario.warmup_s)


def is_whole_trace(workload: Workload) -> bool:
    """Whether it is a trace as it was recorded, whose rows need no words."""
    return isinstance(workload, Trace) and workload.scaled_down is None


def planned_sessions(plan: LoadPlan, copies: int) -> Iterator[TokenSession]:
    """The sessions of a load, in order of time; of a whole trace, so many copies of each row."""
    trace, arrivals = plan.workload, plan.arrivals
    if not isinstance(trace, Trace) or not is_whole_trace(trace):
        return token_sessions(plan.sessions())
    speed = 1.0
    rows: Iterable[TraceRow] = trace.rows(plan.seed)
    if isinstance(arrivals, OwnTimes):
        speed = arrivals.speed
        if arrivals.rate_per_s is not None:
            own_rate = trace.own_rate_per_s(plan.seed)
            speed = arrivals.rate_per_s / (own_rate * copies) if own_rate else 1.0
    else:
        rows = _at(arrivals.times(plan.seed), rows)
    rows = (_cut(row, trace.max_output) for row in rows)
    load = TraceLoad(copies=copies, speed=speed, duration_s=plan.duration_s)
    return trace_sessions(rows, load, seed=plan.seed)


def _at(times: Iterator[Seconds], rows: Iterable[TraceRow]) -> Iterator[TraceRow]:
    for at_s, row in zip(times, rows, strict=False):
        yield replace(row, at_s=at_s)


def _cut(row: TraceRow, most: int) -> TraceRow:
    return row if row.output_tokens <= most else replace(row, output_tokens=most)
