"""What a fleet does with more than it can: early rejection, and shares under a flooding tenant.

    PYTHONPATH=src .venv/bin/python benchmarks/overload.py            some minutes
    PYTHONPATH=src .venv/bin/python benchmarks/overload.py --quick    one load, keeps no result

OPT-13B on A100s (DistServe's published times), two mixed workers, and two that prefill beside two
that decode. Prompts lognormal with mean 512, answers with mean 200; whoever decides knows only
max_tokens = 2048. Load 1 is the highest rate at which 90 % of requests meet both targets when all
are admitted, to 8 %. Goodput is requests a second that met both; refused ones count as
misses. "in vain" is the share of tokens (prompts and output) of requests that were over in time
whose request missed.

Tenants: one sends 5 times the capacity, three send a tenth of it each: what share of the small
ones' requests meets both targets when they are alone, when all are one tenant, and in turn; and
what share of the tokens served the flood has.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge

from support import result
from support.virtual_fleet import Callers, fleet_of, lengths, met

from antiphon.core.goodput import judge, ttft_s
from antiphon.sim.fleet import TokenSession
from antiphon.types import CallError, CallRecord, Role, Slo

SLO = Slo(ttft_s=1.0, tpot_s=0.1)
FLEETS: dict[str, dict[Role, int]] = {
    "2 mixed": {Role.MIXED: 2},
    "2 prefill, 2 decode": {Role.PREFILL: 2, Role.DECODE: 2},
}
LOADS = (0.5, 1.0, 2.0, 3.0)
POLICIES = ("all", "early-reject", "load-reject")
PROMPT, OUTPUT = (
    lengths("lognormal:mean=512,sd=400,max=2048"),
    lengths("lognormal:mean=200,sd=150,max=1024"),
)
WARM_UP_S, SECONDS, DRAIN_S = 20.0, 50.0, 60.0
MAX_TOKENS = 2048


SEED = 1


def run(
    fleet: str, calls: Iterator[TokenSession], router: Mapping[str, object]
) -> list[CallRecord]:
    """One run; all calls, those of the warm-up too."""
    made, records = fleet_of(FLEETS[fleet], {"router": router}, calls, SLO, max_tokens=MAX_TOKENS)
    made.run(drain_s=DRAIN_S)
    return records


def tenant(name: str, rate_per_s: float) -> Callers:
    """One tenant's calls."""
    return Callers(
        tenant=name, rate_per_s=rate_per_s, seconds=SECONDS, prompt=PROMPT, output=OUTPUT
    )


def due(callers: Callers, place: int = 0) -> int:
    """How many of their calls count."""
    return callers.due_between(SEED, place, WARM_UP_S, SECONDS)


def summary(records: list[CallRecord], rate_per_s: float) -> dict[str, float]:
    """Of calls due after the warm-up. Those that are not over when a run ends have missed."""
    offered = due(tenant("one", rate_per_s))
    calls = [one for one in records if WARM_UP_S <= one.due_at_s < SECONDS]
    good = [one for one in calls if judge(one, SLO).met]
    refused = sum(one.error is CallError.OVERLOADED for one in calls)
    spent = {one.number: _tokens(one) for one in calls if one.token_at_s}
    wasted = sum(spent.values()) - sum(spent.get(one.number, 0) for one in good)
    return {
        "offered_per_s": round(offered / (SECONDS - WARM_UP_S), 3),
        "goodput_per_s": round(len(good) / (SECONDS - WARM_UP_S), 3),
        "attainment": round(len(good) / max(1, offered), 4),
        "refused": round(refused / max(1, offered), 4),
        "in_vain": round(wasted / max(1, sum(spent.values())), 4),
    }


def _tokens(record: CallRecord) -> int:
    return (record.prompt_tokens or 0) + record.output_tokens


def capacity(fleet: str) -> float:
    """The highest rate at which 90 % meet both targets, to 8 %."""
    low, high = 4.0, 8.0
    while _holds(fleet, high):
        low, high = high, 2 * high
    while high > 1.08 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _holds(fleet, middle) else (low, middle)
    print(f"{fleet}: capacity {low:.2f} requests a second", file=sys.stderr)
    return low


def _holds(fleet: str, rate: float) -> bool:
    crowd = tenant("one", rate)
    records = run(fleet, crowd.sessions(SEED, 0), {"admission": "all"})
    return met(records, SLO, WARM_UP_S, SECONDS) >= 0.9 * due(crowd)


def overload(fleet: str, rate: float, loads: tuple[float, ...]) -> list[dict[str, object]]:
    """Each load under each policy."""
    rows: list[dict[str, object]] = []
    for load in loads:
        for policy in POLICIES:
            calls = tenant("one", load * rate).sessions(SEED, 0)
            records = run(fleet, calls, {"admission": policy})
            found = summary(records, load * rate)
            rows.append({"load": load, "admission": policy, **found})
            print(
                f"{fleet:20} load {load:3} {policy:13} goodput {found['goodput_per_s']:6.2f}/s "
                f"({found['attainment']:.1%})  refused {found['refused']:.1%}  "
                f"in vain {found['in_vain']:.1%}",
                flush=True,
            )
    return rows


def flooding(fleet: str, rate: float) -> list[dict[str, object]]:
    """A tenant that sends far more than the fleet can do, beside three who send little."""
    callers = [tenant("flood", 5 * rate), *(tenant(f"small-{k}", 0.1 * rate) for k in range(3))]
    lines = [one.sessions(SEED, place) for place, one in enumerate(callers)]
    all_calls = list(merge(*lines, key=lambda one: (one.at_s, one.number)))
    small = [one for one in all_calls if one.tenant != "flood"]
    ways: dict[str, tuple[list[TokenSession], dict[str, object]]] = {
        "the small ones alone": (small, {}),
        "all as one tenant": ([replace(one, tenant="") for one in all_calls], {}),
        "in turn": (all_calls, {}),
        "in turn, early rejection": (all_calls, {"admission": "early-reject"}),
    }
    small_due = sum(due(one, place) for place, one in enumerate(callers) if place)
    rows: list[dict[str, object]] = []
    for name, (calls, router) in ways.items():
        records = run(fleet, iter(calls), {"max_held": 2**20, **router})
        rows.append({"order": name, **shares(records, small_due)})
        print(
            f"{fleet:20} {name:26} small tenants within SLO {rows[-1]['small_attainment']:.1%}, "
            f"all {rows[-1]['goodput_per_s']:.2f}/s, flood has "
            f"{rows[-1]['flood_share_of_tokens']:.1%} of the tokens served",
            flush=True,
        )
    return rows


def shares(records: Sequence[CallRecord], small_due: int) -> dict[str, object]:
    """Of the small tenants' calls those within targets; of the tokens served the flood's."""
    calls = [one for one in records if WARM_UP_S <= one.due_at_s < SECONDS]
    good = [one for one in calls if judge(one, SLO).met]
    small = [one for one in calls if one.slo_class != "flood"]
    ttfts = sorted(at for one in small if (at := ttft_s(one)) is not None)
    done = [one for one in records if WARM_UP_S <= one.ended_at_s < SECONDS and not one.error]
    served = sum(map(_tokens, done))
    flood = sum(_tokens(one) for one in done if one.slo_class == "flood")
    return {
        "small_attainment": round(sum(one.slo_class != "flood" for one in good) / small_due, 4),
        "small_ttft_p90_s": round(ttfts[int(0.9 * len(ttfts))], 3) if ttfts else None,
        "small_refused": sum(one.error is CallError.OVERLOADED for one in small),
        "goodput_per_s": round(len(good) / (SECONDS - WARM_UP_S), 3),
        "flood_share_of_tokens": round(flood / max(1, served), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one load; no result")
    parser.add_argument("--fleet", choices=tuple(FLEETS), help="this one only")
    options = parser.parse_args()
    found: dict[str, object] = {}
    for fleet in [options.fleet] if options.fleet else FLEETS:
        rate = capacity(fleet)
        rows = overload(fleet, rate, (2.0,) if options.quick else LOADS)
        found[fleet] = {
            "capacity_per_s": round(rate, 3),
            "overload": rows,
            "tenants": flooding(fleet, rate),
        }
        if not options.quick:
            slo = {"ttft_s": SLO.ttft_s, "tpot_s": SLO.tpot_s}
            print(result.write("overload", {"slo": slo, "fleets": found}), flush=True)


if __name__ == "__main__":
    main()
