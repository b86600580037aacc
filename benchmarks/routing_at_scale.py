"""What routing is worth at scale: Mooncake's conversation trace on 16 nodes in virtual time.

    .venv/bin/python benchmarks/routing_at_scale.py                 15 minutes of the hour
    .venv/bin/python benchmarks/routing_at_scale.py --full          all of it
    .venv/bin/python benchmarks/routing_at_scale.py --seconds 300   a look; keeps nothing

Mooncake (Qin et al., FAST 2025) gives mean times to the first token for random choice
(19.65 s), balanced load (5.27), cache-aware choice among caches local to a node (3.58), and
with a cache of all nodes (3.07), for a 70B model on nodes of 8 A800. Here: Llama-3 70B, 8 prefill
and 8 decode nodes, each with a terabyte of memory for KV beside its devices. Random, least-loaded
and slo (the default; Mooncake's algorithm 1 with our costs) with each node's memory for itself,
then slo with all nodes' memory as one pool. Each gets the same calls, `--speed` times as fast as
they came: so that balanced load waits about as long as theirs, whose load is not said. Prompts are
computed by prefill nodes only.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from support import result
from support.mooncake_fleet import A800_NODE, TRACE, Variant, fetched_tokens, mooncake_fleet
from support.quantiles import quantiles

from antiphon.core.goodput import Attainment, ttft_s
from antiphon.sim.fleet import Fleet, Reach, TraceLoad
from antiphon.types import CallRecord, Role, Slo

SLO = Slo(ttft_s=30.0, tpot_s=0.1)
"""Mooncake's targets for this trace."""
ROLES = {Role.PREFILL: 8, Role.DECODE: 8}
DEFAULT_S, FULL_S = 900.0, 3600.0
SPEED = 1.2


@dataclass(frozen=True)
class Case:
    """`claim_s`: what Mooncake measured."""

    name: str
    policy: str
    reach: Reach
    claim_s: float


CASES = (
    Case("random", "random", Reach.HOST, 19.65),
    Case("load-balanced", "least-loaded", Reach.HOST, 5.27),
    Case("local cache", "slo", Reach.HOST, 3.58),
    Case("global cache", "slo", Reach.FLEET, 3.07),
)


def play(case: Case, options: argparse.Namespace) -> tuple[Fleet, Sequence[CallRecord]]:
    """One policy's run."""
    load = TraceLoad(speed=options.speed, duration_s=options.seconds / options.speed)
    fleet, records = mooncake_fleet(
        ROLES,
        options.trace,
        load,
        SLO,
        node=A800_NODE,
        variant=Variant(policy=case.policy, reach=case.reach, conditional_split=False),
    )
    fleet.run(on_progress=lambda now: print(f"\r{case.name} {now:6.0f} s", end="", flush=True))
    return fleet, records


def facts(case: Case, fleet: Fleet, records: Sequence[CallRecord]) -> dict[str, object]:
    """What is kept of one run."""
    ttfts = [seconds for record in records if (seconds := ttft_s(record)) is not None]
    prompts = max(1, sum(record.prompt_tokens or 0 for record in records))
    return {
        "case": case.name,
        "requests": len(records),
        "failed": sum(record.error is not None for record in records),
        "ttft_mean_s": sum(ttfts) / max(1, len(ttfts)),
        "ttft_s": quantiles(ttfts),
        "hit_share": sum(record.cached_tokens or 0 for record in records) / prompts,
        "fetched_share": fetched_tokens(fleet) / prompts,
        "within_slo": Attainment.of(records, (("", SLO),)).both().value,
        "claim_s": case.claim_s,
    }


def line(run: dict[str, object]) -> str:
    ttft = run["ttft_s"]
    assert isinstance(ttft, dict)
    return (
        f"\r{run['case']:13} TTFT mean {run['ttft_mean_s']:6.2f} s (theirs {run['claim_s']:5.2f})  "
        f"p50 {ttft['p50']:6.2f}  p99 {ttft['p99']:6.2f}  hits {run['hit_share']:5.1%}, "
        f"{run['fetched_share']:5.1%} from nodes' memory  within SLO {run['within_slo']:5.1%}"
    )


def ratios(runs: Sequence[dict[str, object]]) -> list[str]:
    """Each mean by the one before it, ours and theirs."""
    lines: list[str] = []
    for before, after in pairwise(runs):
        ours = float(str(after["ttft_mean_s"])) / float(str(before["ttft_mean_s"]))
        theirs = float(str(after["claim_s"])) / float(str(before["claim_s"]))
        lines.append(f"{after['case']} / {before['case']}: {ours:.2f} (Mooncake: {theirs:.2f})")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in CASES]
    parser.add_argument("--seconds", type=float, default=DEFAULT_S, help="of the trace (900)")
    parser.add_argument("--full", action="store_true", help="the whole hour")
    parser.add_argument("--speed", type=float, default=SPEED, help=f"times its own speed ({SPEED})")
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--cases", nargs="+", choices=names, default=names, metavar="NAME")
    options = parser.parse_args()
    options.seconds = FULL_S if options.full else options.seconds
    if not options.trace.exists():
        raise SystemExit(f"{options.trace} is not there: give Mooncake's trace (--trace)")
    runs = []
    for case in CASES:
        if case.name in options.cases:
            runs.append(facts(case, *play(case, options)))
            print(line(runs[-1]), flush=True)
    print("\n".join(ratios(runs)))
    if options.seconds >= DEFAULT_S and options.cases == names:
        kept = {"seconds": options.seconds, "speed": options.speed, "runs": runs}
        print(f"Kept in {result.write('routing_at_scale', kept)}")


if __name__ == "__main__":
    main()
