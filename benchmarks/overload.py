"""What a fleet does with more than it can: early rejection, and shares under a flooding tenant.

    PYTHONPATH=src .venv/bin/python benchmarks/overload.py            some minutes
    PYTHONPATH=src .venv/bin/python benchmarks/overload.py --quick    one load, keeps no result

OPT-13B on A100s (DistServe's published times), two mixed workers, and two that prefill beside two
that decode. Prompts lognormal with mean 512, answers with mean 200; whoever decides knows only
max_tokens = 2048. Load 1 is the highest rate at which 90 % of requests meet both targets when all
are admitted, to 8 %. Goodput is requests a second that met both; refused ones count as
misses. "in vain" is the share of tokens (prompts and output) of requests that were over in time
whose request missed.

Tenants: one sends 5 times the capacity, three send a tenth of it each. Shares are of what was
served in tokens, beside the share of each small tenant's requests that met their targets.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from heapq import merge

from support import result
from support.virtual_fleet import Callers, fleet_of, lengths, met

from antiphon.core.goodput import judge
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
WARM_UP_S, SECONDS, DRAIN_S = 20.0, 60.0, 15.0
MAX_TOKENS = 2048


def sessions(callers: tuple[Callers, ...], seed: int) -> Iterator[TokenSession]:
    """Of all callers, in order of time."""
    lines = (one.sessions(seed, place) for place, one in enumerate(callers))
    return merge(*lines, key=lambda one: (one.at_s, one.number))


def run(
    fleet: str,
    callers: tuple[Callers, ...],
    router: Mapping[str, object],
    seed: int = 1,
) -> list[CallRecord]:
    """One run; all calls, those of the warm-up too."""
    made, records = fleet_of(
        FLEETS[fleet], {"router": router}, sessions(callers, seed), SLO, max_tokens=MAX_TOKENS
    )
    made.run(drain_s=DRAIN_S)
    return records


def crowd(rate_per_s: float) -> tuple[Callers, ...]:
    """One tenant's calls."""
    return (
        Callers(tenant="one", rate_per_s=rate_per_s, seconds=SECONDS, prompt=PROMPT, output=OUTPUT),
    )


def summary(records: list[CallRecord], rate_per_s: float) -> dict[str, float]:
    """Of calls due after the warm-up. Those that are not over when a run ends have missed."""
    offered = crowd(rate_per_s)[0].due_between(1, 0, WARM_UP_S, SECONDS)
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
    records = run(fleet, crowd(rate), {"admission": "all"})
    calls = crowd(rate)[0].due_between(1, 0, WARM_UP_S, SECONDS)
    return met(records, SLO, WARM_UP_S, SECONDS) >= 0.9 * calls


def overload(fleet: str, rate: float, loads: tuple[float, ...]) -> list[dict[str, object]]:
    """Each load under each policy."""
    rows: list[dict[str, object]] = []
    for load in loads:
        for policy in POLICIES:
            records = run(fleet, crowd(load * rate), {"admission": policy})
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
    each = {"prompt": PROMPT, "output": OUTPUT, "seconds": SECONDS}
    small = tuple(Callers(tenant=f"small-{k}", rate_per_s=0.1 * rate, **each) for k in range(3))
    callers = (Callers(tenant="flood", rate_per_s=5 * rate, **each), *small)
    ways: dict[str, dict[str, object]] = {
        "first come, first served": {"quantum_tokens": 2**30, "queue_s": 3600.0},
        "in turn": {},
        "in turn, early rejection": {"admission": "early-reject"},
    }
    rows: list[dict[str, object]] = []
    for name, router in ways.items():
        records = run(fleet, callers, {"max_held": 2**20, **router})
        calls = [one for one in records if WARM_UP_S <= one.due_at_s < SECONDS]
        due = sum(
            one.due_between(1, place, WARM_UP_S, SECONDS)
            for place, one in enumerate(callers)
            if one.tenant != "flood"
        )
        good = [one for one in calls if judge(one, SLO).met]
        kept = sum(one.slo_class != "flood" for one in good) / due
        all_kept = len(good) / (SECONDS - WARM_UP_S)
        done = [one for one in records if WARM_UP_S <= one.ended_at_s < SECONDS and not one.error]
        served = sum(map(_tokens, done))
        share = sum(_tokens(one) for one in done if one.slo_class == "flood") / max(1, served)
        rows.append(
            {
                "order": name,
                "small_attainment": round(kept, 4),
                "goodput_per_s": round(all_kept, 3),
                "flood_share_of_tokens": round(share, 4),
            }
        )
        print(
            f"{fleet:20} {name:26} small tenants within SLO {kept:.1%}, all {all_kept:.2f}/s, "
            f"flood has {share:.1%} of the tokens served"
        )
    return rows


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
