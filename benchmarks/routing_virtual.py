"""The set-up of routing.py in virtual time: many seeds, and workers that are not equally fast.

    .venv/bin/antiphon profile smollm2-135m --cores 0 -o /tmp/profile.json    once
    .venv/bin/python benchmarks/routing_virtual.py --profile /tmp/profile.json
    .venv/bin/python benchmarks/routing_virtual.py --profile FILE --paces 1 1 --seeds 3

Two mixed workers, scaled conversations of Mooncake's trace, no store, each policy under the same
calls. Live, load generator and gateway share the workers' cores: paces differ from each other, from
step to step, and from what the router expects (`--paces`, `--jitter`), which it must learn. A mean
over one seed says little: single ones differ by a fifth and more in either direction.
"""

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from routing import SETUPS, TRACES, requests
from support import result
from support.host_fleet import KV_BYTES_PER_TOKEN, PROFILE, host_fleet

from antiphon.core.config import build
from antiphon.core.draws import Draws
from antiphon.core.goodput import ttft_s
from antiphon.perf import (
    DEFAULT_STEP_TIME,
    FittedPhaseTime,
    FittedStepTime,
    read_profile,
)
from antiphon.sim.fleet import Fleet, Pool, TokenSession, UserRules, token_sessions
from antiphon.types import CallRecord, Role, Seconds, StepPlan
from antiphon.workload import Session, TimedSession, TraceAsk, Turn, at_rate

KV_BYTES = 256 * 2**20
POLICIES = tuple(setup.policy for setup in SETUPS if not setup.store)


@dataclass(frozen=True)
class Paced:
    """A device `pace` times as slow as its profile; each step by chance `jitter` more or less."""

    steps: FittedStepTime
    pace: float
    jitter: float
    draws: Draws
    name: int

    def seconds(self, plan: StepPlan) -> Seconds:
        return self._off(plan) * self.steps.seconds(plan)

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        return self._off(plan) * self.steps.repeated_s(plan, passes)

    def lag_s(self, plan: StepPlan) -> Seconds:
        return 0.0

    def _off(self, plan: StepPlan) -> float:
        drawn = self.draws.between(-1.0, 1.0, "step", self.name, plan.number)
        return self.pace * math.exp(self.jitter * drawn)


def play(
    policy: str, asks: Sequence[TraceAsk], seed: int, options: argparse.Namespace
) -> Sequence[CallRecord]:
    """One policy's run."""
    config = build({"router": {"policy": policy}, "kv": {"memory_bytes": KV_BYTES}})
    steps, draws = read_profile(options.profile).step_time, Draws(seed)
    expected = FittedPhaseTime(
        step_time=DEFAULT_STEP_TIME, step_tokens=config.scheduler.max_batched_tokens
    )
    pools = tuple(
        Pool(
            name=f"mixed-{number}",
            role=Role.MIXED,
            workers=1,
            step_time=Paced(steps, pace, options.jitter, draws, number),
            phases=expected,
            kv_tokens=KV_BYTES // KV_BYTES_PER_TOKEN,
        )
        for number, pace in enumerate(options.paces)
    )
    spec = host_fleet(pools, config, expected)
    records: list[CallRecord] = []
    Fleet(spec, sessions(asks, options.rate), UserRules(), records.append).run()
    return records


def sessions(asks: Sequence[TraceAsk], rate_per_s: float) -> Iterator[TokenSession]:
    """Each call at the trace's time."""
    return token_sessions(
        TimedSession(one.at_s, Session(number=number, turns=(Turn(ask=one.ask),)))
        for number, one in enumerate(at_rate(asks, rate_per_s))
    )


def facts(policy: str, runs: Sequence[Sequence[CallRecord]]) -> dict[str, object]:
    """Means over all seeds."""
    means = [
        statistics.fmean(ttft for record in run if (ttft := ttft_s(record)) is not None)
        for run in runs
    ]
    prompts = sum(record.prompt_tokens or 0 for run in runs for record in run)
    cached = sum(record.cached_tokens or 0 for run in runs for record in run)
    return {
        "policy": policy,
        "ttft_mean_s": statistics.fmean(means),
        "ttft_means_s": [round(mean, 4) for mean in means],
        "hit_share": cached / prompts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", type=Path, default=PROFILE, help="of one core")
    parser.add_argument("--paces", type=float, nargs="+", default=[1.3, 1.05])
    parser.add_argument("--jitter", type=float, default=0.2, help="of each step, as a power of e")
    parser.add_argument("--rate", type=float, default=4.5, help="requests a second (4.5)")
    parser.add_argument("--seeds", type=int, default=10, help="so many loads (10)")
    parser.add_argument("--traces", type=Path, default=TRACES)
    options = parser.parse_args()
    loads = [load_of(seed, options.traces) for seed in range(1, options.seeds + 1)]
    runs = []
    for policy in POLICIES:
        played = [play(policy, asks, seed, options) for seed, asks in enumerate(loads)]
        runs.append(facts(policy, played))
        mean, hits = runs[-1]["ttft_mean_s"], runs[-1]["hit_share"]
        print(f"{policy:14} TTFT mean {mean:6.3f} s  hits {hits:5.1%}", flush=True)
    if options.seeds >= 10:
        print(result.write("routing_virtual", {"paces": options.paces, "runs": runs}))


def load_of(seed: int, traces: Path) -> list[TraceAsk]:
    """As routing.py's, of other conversations for each seed."""
    return requests(
        argparse.Namespace(
            traces=traces,
            block_tokens=32,
            max_output=32,
            max_prompt=2048,
            share=0.035,
            requests=None,
            seed=seed,
        )
    )


if __name__ == "__main__":
    main()
