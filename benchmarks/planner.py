"""A planner against every static fleet, under a load that rises and falls.

    .venv/bin/python benchmarks/planner.py              hours; writes results/planner_h200.*
    .venv/bin/python benchmarks/planner.py --shrink 5   a fifth of the work: all times but those of
                                                        requests are a fifth, and chance weighs more
    .venv/bin/python benchmarks/planner.py --device l40s   a fleet of many small devices

The set-up of Dynamo's published planner test (tests/planner/README.md): Llama-3.1 8B in FP8 on
H200, 3000 tokens in, 300 out, 5 to 45 requests/s as a sine of 600 s, targets 200 ms to the first
token and 10 ms a token after it. Here step times are a roofline of that model and device
(perf/hardware: 40 ms for a prompt, 9 ms for a step of 64), prefill and decode are pools of their
own, hand-overs go over 50 GB/s, and everything that decides is what the live cluster runs. Four or
five such devices serve the peak, so little is to be gained there by having fewer: `--device l40s`
has the same load on 24 slower ones (110 ms for a prompt, 25 ms for a step of 20), with targets of
500 and 25 ms.

Goodput: requests within both targets, a second, over all of the run: while the planner has seen
nothing yet, too. A worker costs from when it is asked for until it is drained. The planner knows
nothing of the load but what came.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from support import result
from support.sine_load import SineLoad

from antiphon.core.config import build
from antiphon.core.goodput import Attainment, percentile, tpot_s, ttft_s
from antiphon.core.planner import Capacity, Planner, PlannerRules
from antiphon.perf import LinkTime
from antiphon.perf.hardware import Deployment, device_of, shape_of
from antiphon.sim.fleet import Fleet, FleetSpec, Pool, Steering, UserRules
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import CallRecord, Role, Slo

ROLES = (Role.PREFILL, Role.DECODE)
READY_S = (15.0, 60.0, 120.0)
"""From asking for a worker until it serves: warm weights, a usual start, a slow one."""
USUAL_READY_S = 60.0
PERIOD_S = 600.0


@dataclass(frozen=True)
class Setup:
    """Devices, targets that they can meet, and the static fleets (prefill, decode) to compare with.

    Where a fleet is large, these are as good as can be for their sizes: in the proportions that the
    closed forms want, and to both sides of them.
    """

    device: str
    slo: Slo
    budget: int
    statics: tuple[tuple[int, int], ...]

    @property
    def model(self) -> Deployment:
        return Deployment(
            model=shape_of("llama-3-8b"),
            device=device_of(self.device),
            weight_bytes=1,
            kv_bytes=2,
            step_tokens=8192,
        )


SETUPS = {
    "h200": Setup(
        "h200",
        Slo(ttft_s=0.2, tpot_s=0.01),
        budget=8,
        statics=tuple((prefill, decode) for prefill in (1, 2, 3, 4) for decode in (1, 2, 3)),
    ),
    "l40s": Setup(
        "l40s",
        Slo(ttft_s=0.5, tpot_s=0.025),
        budget=30,
        statics=(
            *((3, 6), (3, 8), (4, 9), (4, 11), (5, 10), (5, 12)),
            *((5, 14), (6, 13), (6, 15), (7, 16), (8, 18)),
        ),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What one fleet came to. `sizes`: time and workers of each role, if they changed."""

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
    directions: int = 0
    """How often growth turned into shrinking, or back, in any pool."""
    sizes: list[tuple[float, int, int]] = field(default_factory=list)
    expected: list[tuple[float, float]] = field(default_factory=list)

    @property
    def goodput(self) -> float:
        return self.met / self.duration_s

    @property
    def breaches(self) -> int:
        return self.calls - self.met

    @property
    def mean_devices(self) -> float:
        return self.device_hours * 3600 / self.duration_s


def fleet_of(
    setup: Setup, counts: Sequence[int], load: SineLoad, seed: int
) -> tuple[Fleet, list[CallRecord]]:
    model, slo = setup.model, setup.slo
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
        pools=tuple(pool_of(setup, *one) for one in zip(ROLES, counts, strict=True)),
        config=config,
        expected=Expected(model, link),
        transfer=link,
        kv_bytes_per_token=round(model.kv_bytes_per_token),
        max_model_len=8192,
    )
    records: list[CallRecord] = []
    rules = UserRules(slos=(("", slo),), max_tokens=load.output_tokens, all_stamps=False)
    return Fleet(spec, load.sessions(seed), rules, records.append), records


def pool_of(setup: Setup, role: Role, workers: int) -> Pool:
    model = setup.model
    return Pool(
        name=role.value,
        role=role,
        workers=workers,
        step_time=model,
        phases=model,
        kv_tokens=model.kv_tokens,
    )


def static(setup: Setup, counts: Sequence[int], load: SineLoad, seed: int) -> Outcome:
    """So many prefill and decode workers from beginning to end."""
    fleet, records = fleet_of(setup, counts, load, seed)
    fleet.run()
    name = f"{counts[0]} prefill, {counts[1]} decode"
    return outcome(name, records, setup, load, sum(counts) * load.duration_s)


def planned(setup: Setup, ready_s: float, load: SineLoad, seed: int) -> Outcome:
    """The planner, which begins with one worker of each role."""
    fleet, records = fleet_of(setup, (1, 1), load, seed)
    pace = load.period_s / PERIOD_S
    rules = PlannerRules(
        slo=setup.slo,
        interval_s=15.0 * pace,
        ready_s=ready_s * pace,
        cool_down_s=30.0 * pace,
        clear_s=30.0 * pace,
        budget=setup.budget,
    )
    model = setup.model
    capacity = {role: Capacity(model, model.kv_tokens) for role in ROLES}
    templates = {role: pool_of(setup, role, 1) for role in ROLES}
    steering = Steering(fleet, rules, templates, Planner(rules, capacity), flip_s=5.0 * pace)
    fleet.run()
    sizes = [(at, now[Role.PREFILL], now[Role.DECODE]) for at, now in steering.sizes]
    return outcome(
        f"planner, {ready_s:.0f} s to start",
        records,
        setup,
        load,
        steering.device_s(load.duration_s),
        directions=sum(turns([size[place] for size in sizes]) for place in (1, 2)),
        sizes=[size for size in sizes if size[0] <= load.duration_s],
        expected=[(one.at, one.expected_per_s) for one in steering.decisions],
    )


def outcome(
    name: str,
    records: Sequence[CallRecord],
    setup: Setup,
    load: SineLoad,
    device_s: float,
    **more: object,
) -> Outcome:
    attainment = Attainment.of(records, (("", setup.slo),))
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
        device_hours=device_s / 3600,
        **more,  # pyright: ignore[reportArgumentType]
    )


def p99(values: Sequence[float | None]) -> float:
    return percentile(sorted(value for value in values if value is not None), 0.99)


def turns(sizes: Sequence[int]) -> int:
    """Changes of direction."""
    steps = [after - before for before, after in pairwise(sizes)]
    signs = [step > 0 for step in steps if step]
    return sum(one != other for one, other in pairwise(signs))


@dataclass(frozen=True)
class Case:
    """One run: of a static fleet (`what`: its workers) or of the planner (seconds to start)."""

    device: str
    kind: str
    what: tuple[float, ...]
    load: SineLoad
    seed: int

    @property
    def file_name(self) -> str:
        what = "_".join(f"{one:g}" for one in self.what)
        load = f"{self.load.period_s:g}x{self.load.periods}"
        return f"{self.device}-{self.kind}-{what}-{load}-{self.seed}.json"


def measure(case: Case, kept: Path | None) -> Outcome:
    """In a process of its own. What is kept is not run again."""
    file = None if kept is None else kept / case.file_name
    if file is not None and file.exists():
        return Outcome(**json.loads(file.read_text()))
    setup = SETUPS[case.device]
    if case.kind == "static":
        found = static(setup, [int(count) for count in case.what], case.load, case.seed)
    else:
        found = planned(setup, case.what[0], case.load, case.seed)
    if file is not None:
        file.write_text(json.dumps(asdict(found)))
    return found


# ── telling ──────────────────────────────────────────────────────────────────────────────────────


def table(statics: Sequence[Outcome], planners: Sequence[Outcome]) -> str:
    lines = [
        "| fleet | goodput | within targets | TTFT | TPOT | breaches | device-hours | devices |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in (*sorted(statics, key=lambda one: one.device_hours), *planners):
        lines.append(
            f"| {one.name} | {one.goodput:.2f}/s | {one.met / one.calls:.1%} "
            f"| {one.ttft_met / one.calls:.1%} | {one.tpot_met / one.calls:.1%} | {one.breaches} "
            f"| {one.device_hours:.2f} | {one.mean_devices:.2f} |"
        )
    return "\n".join(lines)


def verdict(statics: Sequence[Outcome], planner: Outcome) -> Mapping[str, object]:
    """The planner against static fleets: of its cost (or the next one up), and of its goodput."""
    equal = [one for one in statics if one.mean_devices <= -(-planner.mean_devices // 1)]
    found: dict[str, object] = {"planner": planner.name}
    if equal:
        best = max(equal, key=lambda one: (one.met, -one.device_hours))
        found["best_static_of_equal_cost"] = best.name
        found["its_mean_devices"] = best.mean_devices
        found["goodput_gain"] = planner.met / best.met - 1
        found["breaches_less"] = 1 - planner.breaches / max(1, best.breaches)
        found["cost_less"] = 1 - planner.device_hours / best.device_hours
    as_good = [one for one in statics if one.met >= planner.met]
    if as_good:
        cheapest = min(as_good, key=lambda one: (one.device_hours, -one.met))
        found["cheapest_static_as_good"] = cheapest.name
        found["cost_less_than_that"] = 1 - planner.device_hours / cheapest.device_hours
    return found


def draw(
    load: SineLoad, statics: Sequence[Outcome], planners: Sequence[Outcome], path: Path
) -> None:
    """Workers over time under the load, and goodput against cost."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    usual = next((one for one in planners if f" {USUAL_READY_S:.0f} s" in one.name), planners[0])
    times = [at for at, _, _ in usual.sizes]
    left.plot(times, [load.per_s(at) for at in times], color="0.6", label="requests/s (true)")
    left.plot(*zip(*usual.expected, strict=True), ":", color="0.4", label="expected, highest")
    left.set(xlabel="seconds", ylabel="requests/s", xlim=(0, load.duration_s), title=usual.name)
    workers = left.twinx()
    for place, role in enumerate(ROLES, start=1):
        counts = [size[place] for size in usual.sizes]
        workers.step(times, counts, where="post", label=f"{role} workers")
    workers.set(ylim=(0, None), ylabel="workers")
    handles = [*left.get_legend_handles_labels()[0], *workers.get_legend_handles_labels()[0]]
    left.legend(handles=handles, fontsize=7, loc="upper left")
    for name, fleets, mark in (("static", statics, "o"), ("planner", planners, "*")):
        right.scatter(
            [one.mean_devices for one in fleets],
            [one.goodput for one in fleets],
            marker=mark,
            s=90 if mark == "*" else 30,
            label=name,
        )
    for one in (*statics, *planners):
        short = one.name.replace(" prefill, ", "P").replace(" decode", "D").replace("planner, ", "")
        right.annotate(
            short,
            (one.mean_devices, one.goodput),
            fontsize=7,
            xytext=(4, 3),
            textcoords="offset points",
        )
    right.set(xlabel="mean devices", ylabel="goodput, requests/s", ylim=(0, None))
    right.grid(alpha=0.3)
    right.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--periods", type=int, default=2, help="of 600 s")
    parser.add_argument("--device", choices=SETUPS, default="h200")
    parser.add_argument("--shrink", type=float, default=1.0, help="times are so much shorter")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder of runs that are done: go on from them")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    load = SineLoad(period_s=PERIOD_S / options.shrink, periods=options.periods)
    setup = SETUPS[options.device]
    cases = [Case(options.device, "planner", (ready,), load, options.seed) for ready in READY_S]
    cases += [Case(options.device, "static", one, load, options.seed) for one in setup.statics]
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(max_workers=options.jobs) as pool:
        for run in [pool.submit(measure, case, options.keep) for case in cases]:
            one = run.result()
            outcomes.append(one)
            print(f"{one.name:28} {one.goodput:6.2f}/s {one.mean_devices:5.2f} devices", flush=True)
    tell(setup, load, outcomes, options.shrink)


def tell(setup: Setup, load: SineLoad, outcomes: Sequence[Outcome], shrink: float) -> None:
    planners = [one for one in outcomes if one.sizes]
    statics = [one for one in outcomes if not one.sizes]
    print(table(statics, planners))
    verdicts = [verdict(statics, one) for one in planners]
    for one in verdicts:
        print(one)
    name = f"planner_{setup.device}"
    draw(load, statics, planners, result.RESULTS / f"{name}.svg")
    told = {
        "shrink": shrink,
        "load": asdict(load),
        "targets": asdict(setup.slo),
        "device": setup.device,
        "model": setup.model.model.name,
        "fleets": [asdict(one) | {"goodput_per_s": one.goodput} for one in outcomes],
        "verdicts": verdicts,
    }
    print(f"Kept in {result.write(name, told)}")


if __name__ == "__main__":
    main()
