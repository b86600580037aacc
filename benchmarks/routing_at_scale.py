"""What routing is worth at scale: Mooncake's conversation trace on 16 workers in virtual time.

    .venv/bin/python benchmarks/routing_at_scale.py                 the hour: 8 minutes of a core
    .venv/bin/python benchmarks/routing_at_scale.py --seconds 600   its first ten minutes; no result

Mooncake (Qin et al., FAST 2025) gives mean times to the first token for random choice (19.65 s),
balanced load (5.27), the local cache (3.58) and the global one (3.07), of a 70B model. Here:
Llama-3 70B on 4 H800 each, 8 prefill and 8 decode workers; random, least-loaded, and slo (the
default), by which a prefix is of use on the worker that computed it. KV of other workers' memories
and a pooled store are not in the simulator, so there is no row for the global cache. Each policy
gets the same calls, `--speed` times as fast as they came. Last, 16 mixed workers by the default.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support import result
from support.mooncake_fleet import TRACE, mooncake_fleet
from support.quantiles import quantiles

from antiphon.core.goodput import Attainment, ttft_s
from antiphon.sim.fleet import TraceLoad
from antiphon.types import CallRecord, Role, Slo

SLO = Slo(ttft_s=30.0, tpot_s=0.1)
"""Mooncake's targets for this trace."""
FULL_S = 3600.0


@dataclass(frozen=True)
class Case:
    """`claim_s`: what Mooncake measured."""

    name: str
    policy: str
    roles: tuple[tuple[Role, int], ...] = ((Role.PREFILL, 8), (Role.DECODE, 8))
    claim_s: float | None = None


CASES = (
    Case("random", "random", claim_s=19.65),
    Case("load-balanced", "least-loaded", claim_s=5.27),
    Case("local cache", "slo", claim_s=3.58),
    Case("coupled", "slo", roles=((Role.MIXED, 16),)),
)


def play(case: Case, options: argparse.Namespace) -> Sequence[CallRecord]:
    """One policy's run."""
    load = TraceLoad(speed=options.speed, duration_s=options.seconds / options.speed)
    fleet, records = mooncake_fleet(dict(case.roles), options.trace, load, SLO, policy=case.policy)
    fleet.run(on_progress=lambda now: print(f"\r{case.name} {now:6.0f} s", end="", flush=True))
    return records


def facts(case: Case, records: Sequence[CallRecord]) -> dict[str, object]:
    """What is kept of one run."""
    ttfts = [seconds for record in records if (seconds := ttft_s(record)) is not None]
    prompts = sum(record.prompt_tokens or 0 for record in records)
    return {
        "case": case.name,
        "requests": len(records),
        "failed": sum(record.error is not None for record in records),
        "ttft_mean_s": sum(ttfts) / max(1, len(ttfts)),
        "ttft_s": quantiles(ttfts),
        "hit_share": sum(record.cached_tokens or 0 for record in records) / max(1, prompts),
        "within_slo": Attainment.of(records, (("", SLO),)).both().value,
        "claim_s": case.claim_s,
    }


def line(run: dict[str, object]) -> str:
    claim = f"{run['claim_s']:6.2f}" if run["claim_s"] else "     –"
    ttft = run["ttft_s"]
    assert isinstance(ttft, dict)
    return (
        f"\r{run['case']:14} TTFT mean {run['ttft_mean_s']:7.2f} s (Mooncake: {claim})  "
        f"p50 {ttft['p50']:6.2f}  p99 {ttft['p99']:6.2f}  "
        f"hits {run['hit_share']:5.1%}  within SLO {run['within_slo']:5.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in CASES]
    parser.add_argument("--seconds", type=float, default=FULL_S, help="of the trace (3600)")
    parser.add_argument("--speed", type=float, default=1.0, help="times its own speed (1)")
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--cases", nargs="+", choices=names, default=names, metavar="NAME")
    options = parser.parse_args()
    if not options.trace.exists():
        raise SystemExit(f"{options.trace} is not there: give Mooncake's trace (--trace)")
    runs = []
    for case in CASES:
        if case.name in options.cases:
            runs.append(facts(case, play(case, options)))
            print(line(runs[-1]), flush=True)
    if options.seconds >= FULL_S and options.cases == names:
        print(result.write("routing_at_scale", {"speed": options.speed, "runs": runs}))


if __name__ == "__main__":
    main()
