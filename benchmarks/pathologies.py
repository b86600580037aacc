"""What routers and planners of other systems are known to do wrong: a scenario each, virtual time.

    PYTHONPATH=src .venv/bin/python benchmarks/pathologies.py            minutes of one core; a busy
                                                                 machine changes no number
    PYTHONPATH=src .venv/bin/python benchmarks/pathologies.py --quick    one seed; keeps no result

Routers: eight workers under calls that are hard to route, the default (`slo`) beside every
baseline. The busiest worker is at most 1.3 times as busy as the mean, and first tokens come no
later, on average, than with the best baseline of that scenario (by 1 % and 3 ms at most). Planners:
fleets of prefill and decode workers, which serve a share of calls within both targets, the floor,
and turn between growing and shrinking at most twice, in an hour of constant load too. Controls show
that the scenario is one: what goes wrong there without what is meant against it. `tests/sim` holds
the same scenarios. Ends with 1 if a goal is missed.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from support import result

TESTS = Path(__file__).parents[1] / "tests" / "sim"
sys.path += [str(TESTS), str(TESTS / "fleet")]
from routed_fleet import BASELINES, means  # noqa: E402
from router_loads import EQUAL_S, MOST_UNEVEN, SCENARIOS, Scenario  # noqa: E402
from steering_kit import RULES, SLO, TOO_FAST, Blind, Run, slow_when_new, told  # noqa: E402

from antiphon.core.goodput import Attainment  # noqa: E402
from antiphon.core.planner import Planner  # noqa: E402

OURS = "slo"
SEEDS, PLANNER_SEEDS = (1, 2, 3), (1, 2)
HOUR_S = 3600.0
MOST_TURNS = 2
BURST_OVER_S = 60.0


@dataclass(frozen=True)
class RoutedRow:
    """Seconds are means to the first token, over calls and seeds; `uneven` is of the busiest worker
    to the mean, on average over seeds."""

    scenario: str
    ours_s: float
    best: str
    best_s: float
    worst: str
    worst_s: float
    uneven: float
    met: bool


def routed(scenario: Scenario, seeds: Sequence[int]) -> RoutedRow:
    loads = [scenario.load(seed) for seed in seeds]
    found = means(scenario.plant, loads)
    best, worst = (pick(BASELINES, key=found.__getitem__) for pick in (min, max))
    uneven = fmean(
        scenario.plant.play(OURS, load, seed=number).unevenness(scenario.evenly)
        for number, load in enumerate(loads)
    )
    ours = found[OURS]
    in_time = ours <= 1.01 * found[best] + EQUAL_S
    met = in_time and uneven <= MOST_UNEVEN
    return RoutedRow(scenario.name, ours, best, found[best], worst, found[worst], uneven, met)


@dataclass(frozen=True)
class PlannedRow:
    """`goodput`: share of calls within both targets; `control`: the same without what is meant
    against that pathology (None: there is none)."""

    scenario: str
    calls: int
    goodput: float
    floor: float
    turns: int
    control: float | None
    met: bool


def planned(quick: bool, seed: int) -> Iterator[PlannedRow]:
    hour = Run((1, 1), 8.0, HOUR_S / (6 if quick else 1), Planner(RULES, told()), seed=seed).run()
    yield row("constant load", hour, 0.9)
    rules = replace(RULES, interval_s=2.5, ready_s=2.5)
    blind = Run((1, 1), 20.0, 20.0, Blind(rules, told(TOO_FAST)), rules, seed=seed).run()
    seeing = Run((1, 1), 20.0, 60.0, Planner(rules, told(TOO_FAST)), rules, seed=seed).run()
    yield row("blind to queues, a profile that is too fast", seeing, 0.6, blind.met)
    warm = Run((1, 1), 13.0, 70.0, Planner(RULES, told()), seed=seed).run()
    cold = Run((1, 1), 13.0, 70.0, Planner(RULES, told()), seed=seed)
    slow_when_new(cold, 5.0, 4.0)
    yield row("cold starts: new workers are slow", cold.run(), 0.5, warm.met)
    burst = Run((1, 1), 5.0, 150.0, Planner(RULES, told()), burst=(20.0, 120), seed=seed)
    yield row("a burst: all after it", burst.run(), 0.9, since_s=BURST_OVER_S)


def row(
    name: str, run: Run, floor: float, control: float | None = None, *, since_s: float = 0.0
) -> PlannedRow:
    """Of the calls that came from `since_s` on."""
    counted = [one for one in run.records if one.due_at_s >= since_s]
    goodput = Attainment.of(counted, (("", SLO),)).both().value
    met = goodput >= floor and run.turns <= MOST_TURNS
    return PlannedRow(name, len(counted), goodput, floor, run.turns, control, met)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one seed; nothing is kept")
    options = parser.parse_args()
    seeds, planner_seeds = (SEEDS[:1],) * 2 if options.quick else (SEEDS, PLANNER_SEEDS)
    routes: list[RoutedRow] = []
    print("| router | TTFT, ours | best baseline | worst baseline | max/mean load | |")
    print("|---|---|---|---|---|---|")
    for scenario in SCENARIOS:
        one = routed(scenario, seeds)
        routes.append(one)
        print(
            f"| {one.scenario} | {one.ours_s * 1e3:.0f} ms "
            f"| {one.best_s * 1e3:.0f} ms ({one.best}) "
            f"| {one.worst_s * 1e3:.0f} ms ({one.worst}) | {one.uneven:.2f} | {said(one.met)} |",
            flush=True,
        )
    plans: list[tuple[int, PlannedRow]] = []
    print("\n| planner | seed | calls | goodput | floor | turns | control | |")
    print("|---|---|---|---|---|---|---|---|")
    for seed in planner_seeds:
        for found in planned(options.quick, seed):
            plans.append((seed, found))
            control = "" if found.control is None else f"{found.control:.0%}"
            print(
                f"| {found.scenario} | {seed} | {found.calls} | {found.goodput:.1%} "
                f"| {found.floor:.0%} | {found.turns} | {control} | {said(found.met)} |",
                flush=True,
            )
    if not options.quick:
        kept = {
            "seeds": seeds,
            "routers": [asdict(one) for one in routes],
            "planner": [{"seed": seed, **asdict(found)} for seed, found in plans],
        }
        print(result.write("pathologies", kept))
    return int(not all(one.met for one in (*routes, *(found for _, found in plans))))


def said(met: bool) -> str:
    return "met" if met else "**missed**"


if __name__ == "__main__":
    sys.exit(main())
