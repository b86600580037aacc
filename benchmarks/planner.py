"""A planner against every static fleet, under a load that rises and falls.

    .venv/bin/python benchmarks/planner.py                 two set-ups below, times a fifth as long
    .venv/bin/python benchmarks/planner.py --setup l40s    one of them
    .venv/bin/python benchmarks/planner.py --full --keep DIR   hours; goes on from what is in DIR
    .venv/bin/python benchmarks/planner.py --load step     another load; keeps no result
    .venv/bin/python benchmarks/planner.py --log           and why the planner did what it did

The load is that of Dynamo's published planner test (tests/planner/README.md): Llama-3.1 8B in FP8,
3000 tokens in, 300 out, 5 to 45 requests/s as a sine of 600 s, three periods, prefill and decode in
pools of their own. Theirs begins with one worker of each and no knowledge of the load, and is put
beside a static fleet of 4 devices: 52 % more goodput, 29 % more a device, so it used 18 % more
devices. Here each planner is put beside the best static fleet of its own mean devices, rounded up.

    h200-dynamo   200 ms and 10 ms; as fast as Dynamo says of its own: 15 requests/s a device in
                  either phase. Shape of the times: the roofline of an H200
    h200          the same devices as the roofline has them: 25 requests/s; four or five serve the
                  peak, and little is to be gained by having fewer
    l40s          500 ms and 25 ms; 21 devices serve the peak

Goodput: requests within both targets, a second, over all of the run, so also while the planner has
seen nothing yet; "later" is from the second period on. A worker costs from when it is asked for
until it is drained. A planner decides each 15 s, a worker takes 15, 60 or 120 s to start; when
the period is a fifth, these are, too, and what stays (prompts, answers, chance) weighs more.
Hand-overs go over 50 GB/s. Everything that decides is what the live cluster runs.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from support import result
from support.planned_fleets import PERIOD_S, Outcome, Plan, Setup, planned, static
from support.planned_plot import draw
from support.varying_load import KINDS, VaryingLoad

from antiphon.host import write_whole
from antiphon.host.process_pool import process_pool
from antiphon.types import Slo

SHRINK = 5.0
PLANS = (
    Plan(60.0, begin="least"),
    Plan(60.0),
    Plan(60.0, told=2),
    Plan(15.0),
    Plan(120.0),
)
SETUPS = {
    one.name: one
    for one in (
        Setup(
            "h200-dynamo",
            "h200",
            Slo(ttft_s=0.2, tpot_s=0.01),
            budget=12,
            phase_per_s=15.0,
            statics=((2, 2), (3, 2), (2, 3), (3, 3), (4, 2), (4, 3), (3, 4), (4, 4)),
        ),
        Setup(
            "h200",
            "h200",
            Slo(ttft_s=0.2, tpot_s=0.01),
            budget=8,
            statics=((1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (3, 2), (2, 3), (3, 3), (4, 3)),
        ),
        Setup(
            "l40s",
            "l40s",
            Slo(ttft_s=0.5, tpot_s=0.025),
            budget=30,
            statics=(
                *((3, 8), (4, 10), (4, 11), (5, 10), (5, 11), (5, 12)),
                *((5, 13), (5, 14), (6, 13), (6, 14), (6, 15)),
            ),
        ),
    )
}
DEFAULT_SETUPS = ("h200-dynamo", "l40s")
PEAK_SHARE = 0.99
"""A static fleet with so many calls within the targets is one for the peak."""


@dataclass(frozen=True)
class Case:
    """One run: of a static fleet (workers), or of a plan."""

    setup: str
    what: tuple[int, int] | Plan
    load: VaryingLoad
    seed: int

    @property
    def file_name(self) -> str:
        what = astuple(self.what) if isinstance(self.what, Plan) else self.what
        load = f"{self.load.kind.replace(' ', '')}-{self.load.period_s:g}x{self.load.periods}"
        return f"{self.setup}-{'_'.join(map(str, what))}-{load}-{self.seed}.json"


def measure(case: Case, kept: Path | None) -> Outcome:
    """In a process of its own. What is kept is not run again."""
    file = None if kept is None else kept / case.file_name
    if file is not None and file.exists():
        return read(json.loads(file.read_text()))
    setup = SETUPS[case.setup]
    if isinstance(case.what, Plan):
        found = planned(setup, case.what, case.load, case.seed)
    else:
        found = static(setup, case.what, case.load, case.seed)
    if file is not None:
        write_whole(file, json.dumps(asdict(found)).encode())
    return found


def read(fields: dict[str, object]) -> Outcome:
    workers = fields.pop("workers")
    assert isinstance(workers, list)
    return Outcome(workers=tuple(workers), **fields)  # pyright: ignore


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
    """Beside the best static fleet of its cost (the next one up), that for the peak, and the
    cheapest one that is as good.
    """
    found: dict[str, object] = {"planner": planner.name, "mean_devices": planner.mean_devices}
    most = -(-planner.mean_devices // 1)
    equal = [one for one in statics if one.mean_devices <= most]
    peak = [one for one in statics if one.met >= PEAK_SHARE * one.calls]
    as_good = [one for one in statics if one.met >= planner.met]
    if equal:
        found["equal_cost"] = beside(
            planner, max(equal, key=lambda one: (one.met, -one.device_hours))
        )
    for name, fleets in (("for_the_peak", peak), ("as_good", as_good)):
        if fleets:
            found[name] = beside(planner, min(fleets, key=lambda one: (one.device_hours, -one.met)))
    return found


def beside(planner: Outcome, fleet: Outcome) -> Mapping[str, object]:
    return {
        "static": fleet.name,
        "goodput_gain": planner.met / fleet.met - 1,
        "breaches": planner.breaches,
        "its_breaches": fleet.breaches,
        "cost_less": 1 - planner.device_hours / fleet.device_hours,
    }


def said(found: Mapping[str, object]) -> str:
    """One line of a verdict for each static fleet it speaks of."""
    lines = [f"{found['planner']}, {found['mean_devices']:.1f} devices:"]
    for name, fleet in found.items():
        if isinstance(fleet, Mapping):
            lines.append(
                f"    {name.replace('_', ' '):13} {fleet['static']:20} "
                f"goodput {fleet['goodput_gain']:+7.1%}, "
                f"{fleet['breaches']} breaches and not {fleet['its_breaches']}, "
                f"device-hours {-fleet['cost_less']:+7.1%}"
            )
    return "\n".join(lines)


def tell(setup: Setup, load: VaryingLoad, outcomes: Sequence[Outcome], keep: bool) -> None:
    planners = [one for one in outcomes if one.sizes]
    statics = [one for one in outcomes if not one.sizes]
    print(table(statics, planners))
    parts = {"all": outcomes}
    if load.periods > 1:
        parts["later"] = [one.later for one in outcomes]
    verdicts: dict[str, list[Mapping[str, object]]] = {}
    for part, whole in parts.items():
        split = [one for one, whole in zip(whole, outcomes, strict=True) if not whole.sizes]
        plans = [one for one, whole in zip(whole, outcomes, strict=True) if whole.sizes]
        verdicts[part] = [verdict(split, one) for one in plans]
        print("The whole run" if part == "all" else "From the second period on")
        for one in verdicts[part]:
            print(said(one))
    if not keep:
        return
    name = f"planner_{setup.name.replace('-', '_')}"
    if planners:
        draw(load, statics, planners, result.RESULTS / f"{name}.svg")
    told = {
        "load": asdict(load),
        "targets": asdict(setup.slo),
        "device": setup.device,
        "model": setup.roofline.model.name,
        "fleets": [
            {key: value for key, value in asdict(one).items() if key != "log"}
            | {"goodput_per_s": one.goodput}
            for one in outcomes
        ],
        "verdicts": verdicts,
    }
    print(f"Kept in {result.write(name, told)}")


def play(setup: Setup, load: VaryingLoad, options: argparse.Namespace) -> list[Outcome]:
    """All fleets of one set-up, the planners first."""
    cases = [Case(setup.name, plan, load, options.seed) for plan in PLANS]
    cases += [Case(setup.name, counts, load, options.seed) for counts in setup.statics]
    if options.kept_only:
        cases = [case for case in cases if (options.keep / case.file_name).exists()]
    outcomes: list[Outcome] = []
    with process_pool(options.jobs) as pool:
        for run in [pool.submit(measure, case, options.keep) for case in cases]:
            one = run.result()
            outcomes.append(one)
            print(
                f"{setup.name:12} {one.name:46} {one.goodput:6.2f}/s {one.mean_devices:5.2f} "
                "devices",
                flush=True,
            )
            if options.log and one.log:
                print("\n".join(one.log), flush=True)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setup", choices=SETUPS, action="append", help="may be repeated")
    parser.add_argument("--load", choices=KINDS, default="sine")
    parser.add_argument("--periods", type=int, default=3, help="of 600 s")
    parser.add_argument("--full", action="store_true", help="no time is shortened: hours")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder of runs that are done: go on from them")
    parser.add_argument(
        "--kept-only", action="store_true", help="run nothing: tell of what --keep has so far"
    )
    parser.add_argument("--log", action="store_true", help="each decision with its reason")
    options = parser.parse_args()
    if options.kept_only and options.keep is None:
        parser.error("--kept-only needs --keep, the folder of the runs")
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    period_s = PERIOD_S if options.full else PERIOD_S / SHRINK
    load = VaryingLoad(options.load, period_s=period_s, periods=options.periods)
    for name in options.setup or DEFAULT_SETUPS:
        outcomes = play(SETUPS[name], load, options)
        if not outcomes:
            continue
        tell(SETUPS[name], load, outcomes, keep=options.load == "sine")


if __name__ == "__main__":
    main()
