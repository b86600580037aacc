"""Fleets of prefill and decode workers under one load: static ones, and those that are planned."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from antiphon.core.config import build
from antiphon.core.goodput import Attainment, judge, percentile, tpot_s, ttft_s
from antiphon.core.planner import Capacity, Decision, Planner, PlannerRules, Shape
from antiphon.perf import LinkTime
from antiphon.perf.hardware import Deployment, device_of, shape_of
from antiphon.sim.fleet import Fleet, FleetSpec, Pool, Steering, UserRules
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import CallRecord, Role, Seconds, Slo, StepPlan

from .varying_load import VaryingLoad

ROLES = (Role.PREFILL, Role.DECODE)
PERIOD_S = 600.0
"""Of the load at its full length: the planner's own times shrink with it."""
_INTERVAL_S, _COOL_DOWN_S, _CLEAR_S, _FLIP_S = 15.0, 30.0, 30.0, 5.0
_WINDOWS = 40
"""Of a period, for attainment over time."""


@dataclass(frozen=True)
class Paced:
    """A device's times, each so many times as long."""

    times: Deployment
    slower: float

    def seconds(self, plan: StepPlan) -> Seconds:
        return self.slower * self.times.seconds(plan)

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        return self.slower * self.times.repeated_s(plan, passes)

    def lag_s(self, plan: StepPlan) -> Seconds:
        return self.slower * self.times.lag_s(plan)

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        return self.slower * self.times.prefill_s(tokens, start)

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        return self.slower * self.times.decode_step_s(sequences, context_tokens)


@dataclass(frozen=True)
class Phases:
    """What a router expects: prompts of one kind of worker, answers of another."""

    prefill: Paced
    decode: Paced

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        return self.prefill.prefill_s(tokens, start)

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        return self.decode.decode_step_s(sequences, context_tokens)


@dataclass(frozen=True)
class Setup:
    """Devices, targets that they can meet, and the static fleets (prefill, decode) to compare with.

    `phase_per_s`: how many of these calls one device takes in either phase within the targets,
    where that was measured; None: what the roofline says.
    """

    name: str
    device: str
    slo: Slo
    budget: int
    statics: tuple[tuple[int, int], ...]
    phase_per_s: float | None = None

    @cached_property
    def roofline(self) -> Deployment:
        return Deployment(
            model=shape_of("llama-3-8b"),
            device=device_of(self.device),
            weight_bytes=1,
            kv_bytes=2,
            step_tokens=8192,
        )

    def times(self, role: Role, load: VaryingLoad) -> Paced:
        """Of one worker of that role."""
        line = self.roofline
        if self.phase_per_s is None:
            return Paced(line, 1.0)
        if role is Role.PREFILL:
            return Paced(line, 1 / self.phase_per_s / line.prefill_s(load.input_tokens))
        batch = round(self.phase_per_s * load.output_tokens * self.slo.tpot_s)
        context = load.input_tokens + load.output_tokens // 2
        return Paced(line, self.slo.tpot_s / line.decode_step_s(batch, batch * context))

    def capacity(self, load: VaryingLoad) -> dict[Role, Capacity]:
        """What a planner is told."""
        kv_tokens = self.roofline.kv_tokens
        return {role: Capacity(self.times(role, load), kv_tokens) for role in ROLES}

    def needs(self, load: VaryingLoad, per_s: float) -> tuple[int, int]:
        """Workers of each role that closed forms give a constant load of that rate."""
        tokens = float(load.input_tokens)
        shape = Shape(input_tokens=tokens, output_tokens=load.output_tokens, uncached=tokens)
        prefill, decode = (
            one.workers(role, per_s, shape, self.slo, self.budget)
            for role, one in self.capacity(load).items()
        )
        return prefill, decode

    def pool(self, role: Role, workers: int, load: VaryingLoad) -> Pool:
        times = self.times(role, load)
        return Pool(
            name=role.value,
            role=role,
            workers=workers,
            step_time=times,
            phases=times,
            kv_tokens=self.roofline.kv_tokens,
        )


@dataclass(frozen=True)
class Plan:
    """How one planner begins. `ready_s`: from asking for a worker until it serves, in a load of
    full length. `begin`: "least", one worker of each role; "mean", what the mean rate needs.
    `told`: so many periods of the same load, on other days, were kept.
    """

    ready_s: float = 60.0
    begin: str = "mean"
    told: int = 0

    @property
    def name(self) -> str:
        begin = ", from one of each" if self.begin == "least" else ""
        told = f", told of {self.told} periods" if self.told else ""
        return f"planner, {self.ready_s:.0f} s to start{begin}{told}"


@dataclass(frozen=True)
class Outcome:
    """What one fleet came to. `periods`: calls, those within both targets and device-seconds of
    each. `windows`: time, calls and those within both targets. `sizes`: time and workers of each
    role, if they change; `expected`: time and highest rate in the forecast.
    """

    name: str
    calls: int
    met: int
    failed: int
    ttft_met: int
    tpot_met: int
    ttft_p99_s: float
    tpot_p99_s: float
    duration_s: float
    device_hours: float
    periods: list[tuple[int, int, float]]
    windows: list[tuple[float, int, int]]
    workers: tuple[int, int] = (0, 0)
    """Of a static fleet."""
    directions: int = 0
    """How often growth turned into shrinking, or back, in any pool."""
    sizes: list[tuple[float, int, int]] = field(default_factory=list)
    expected: list[tuple[float, float]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def goodput(self) -> float:
        return self.met / self.duration_s

    @property
    def breaches(self) -> int:
        return self.calls - self.met

    @property
    def mean_devices(self) -> float:
        return self.device_hours * 3600 / self.duration_s

    @property
    def later(self) -> "Outcome":
        """The same from the second period on."""
        calls, met, device_s = (sum(one[n] for one in self.periods[1:]) for n in range(3))
        rest = len(self.periods) - 1
        return Outcome(
            name=self.name,
            calls=round(calls),
            met=round(met),
            failed=self.failed,
            ttft_met=self.ttft_met,
            tpot_met=self.tpot_met,
            ttft_p99_s=self.ttft_p99_s,
            tpot_p99_s=self.tpot_p99_s,
            duration_s=self.duration_s * rest / len(self.periods),
            device_hours=device_s / 3600,
            periods=self.periods[1:],
            windows=[],
            workers=self.workers,
        )


def static(setup: Setup, counts: tuple[int, int], load: VaryingLoad, seed: int) -> Outcome:
    """So many prefill and decode workers from beginning to end."""
    fleet, records = fleet_of(setup, counts, load, seed)
    fleet.run()
    name = f"{counts[0]} prefill, {counts[1]} decode"
    paid = [sum(counts) * load.period_s] * load.periods
    return outcome(name, records, setup, load, paid, workers=counts)


def planned(setup: Setup, plan: Plan, load: VaryingLoad, seed: int) -> Outcome:
    """A fleet that a planner steers from second 0 on."""
    begin = (1, 1) if plan.begin == "least" else setup.needs(load, load.mean_per_s)
    fleet, records = fleet_of(setup, begin, load, seed)
    pace = load.period_s / PERIOD_S
    rules = PlannerRules(
        slo=setup.slo,
        interval_s=_INTERVAL_S * pace,
        ready_s=plan.ready_s * pace,
        cool_down_s=_COOL_DOWN_S * pace,
        clear_s=_CLEAR_S * pace,
        budget=setup.budget,
    )
    before = VaryingLoad(load.kind, load.low_per_s, load.high_per_s, load.period_s, plan.told)
    history = before.rates(seed + 1000, rules.interval_s) if plan.told else ()
    planner = Planner(rules, setup.capacity(load), history=history)
    templates = {role: setup.pool(role, 1, load) for role in ROLES}
    steering = Steering(fleet, rules, templates, planner, flip_s=_FLIP_S * pace)
    fleet.run()
    ends = [load.period_s * number for number in range(load.periods + 1)]
    paid = [steering.device_s(end) - steering.device_s(begin) for begin, end in pairwise(ends)]
    sizes = [(at, now[Role.PREFILL], now[Role.DECODE]) for at, now in steering.sizes]
    return outcome(
        plan.name,
        records,
        setup,
        load,
        paid,
        directions=sum(turns([size[place] for size in sizes]) for place in (1, 2)),
        sizes=[size for size in sizes if size[0] <= load.duration_s],
        expected=[(one.at, one.expected_per_s) for one in steering.decisions],
        log=[logged(one, load) for one in steering.decisions],
    )


def fleet_of(
    setup: Setup, counts: Sequence[int], load: VaryingLoad, seed: int
) -> tuple[Fleet, list[CallRecord]]:
    model, slo = setup.roofline, setup.slo
    config = build(
        {
            "kv": {"block_tokens": 512, "page_tokens": 64, "prefix_cache": False},
            "scheduler": {"max_batched_tokens": 8192, "max_num_seqs": 256, "max_queue": 65536},
            "cluster": {"heartbeat_s": 1.0, "lost_after_s": 5.0},
            "router": {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s},
        }
    )
    link = LinkTime(setup_s=0.002, bytes_per_s=50e9)
    spec = FleetSpec(
        pools=tuple(setup.pool(*one, load) for one in zip(ROLES, counts, strict=True)),
        config=config,
        expected=Expected(Phases(*(setup.times(role, load) for role in ROLES)), link),
        transfer=link,
        kv_bytes_per_token=round(model.kv_bytes_per_token),
        max_model_len=8192,
    )
    records: list[CallRecord] = []
    rules = UserRules(slos=(("", slo),), max_tokens=load.output_tokens, all_stamps=False)
    return Fleet(spec, load.sessions(seed), rules, records.append), records


# ── what came of it ──────────────────────────────────────────────────────────────────────────────


def outcome(
    name: str,
    records: Sequence[CallRecord],
    setup: Setup,
    load: VaryingLoad,
    paid: Sequence[float],
    **more: object,
) -> Outcome:
    """`paid`: device-seconds of each period."""
    attainment = Attainment.of(records, (("", setup.slo),))
    periods = counted(records, setup.slo, load.period_s, load.periods)
    window_s = load.period_s / _WINDOWS
    windows = counted(records, setup.slo, window_s, load.periods * _WINDOWS)
    return Outcome(
        name=name,
        calls=attainment.calls,
        met=attainment.met,
        failed=sum(one.error is not None for one in records),
        ttft_met=attainment.ttft_met,
        tpot_met=attainment.tpot_met,
        ttft_p99_s=p99([ttft_s(one) for one in records]),
        tpot_p99_s=p99([tpot_s(one) for one in records]),
        duration_s=load.duration_s,
        device_hours=sum(paid) / 3600,
        periods=[(*one, device_s) for one, device_s in zip(periods, paid, strict=True)],
        windows=[(number * window_s, *one) for number, one in enumerate(windows)],
        **more,  # pyright: ignore[reportArgumentType]
    )


def counted(
    records: Sequence[CallRecord], slo: Slo, part_s: float, parts: int
) -> list[tuple[int, int]]:
    """Calls that were due in each part of the time, and those of them within both targets."""
    calls, met = [0] * parts, [0] * parts
    for one in records:
        place = min(parts - 1, int(one.due_at_s / part_s))
        calls[place] += 1
        met[place] += judge(one, slo).met
    return list(zip(calls, met, strict=True))


def p99(values: Sequence[float | None]) -> float:
    return percentile(sorted(value for value in values if value is not None), 0.99)


def turns(sizes: Sequence[int]) -> int:
    """Changes of direction."""
    steps = [after - before for before, after in pairwise(sizes)]
    signs = [step > 0 for step in steps if step]
    return sum(one != other for one, other in pairwise(signs))


def logged(decision: Decision, load: VaryingLoad) -> str:
    target = " ".join(f"{role.value[0].upper()}{count}" for role, count in decision.target)
    return (
        f"{decision.at:6.1f} s, {load.per_s(decision.at):4.1f}/s: {target:8} "
        f"{len(decision.moves)} moves; {decision.reason}"
    )
