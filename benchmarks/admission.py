"""How much memory a scheduler promises: Past-Future against a conservative and an aggressive rule.

    PYTHONPATH=src .venv/bin/python benchmarks/admission.py            a few minutes
    PYTHONPATH=src .venv/bin/python benchmarks/admission.py --quick    one workload, keeps no result

One mixed worker, OPT-13B on an A100 (DistServe's published times, KV for 66,144 tokens). Whoever
decides knows `max_tokens` and what ended before, never how long an answer will be. "memory" is the
mean share of the KV memory that is held between warm-up and end, "evicted" the preemptions a
request, "goodput" the requests a second that meet TTFT 5 s and TPOT 100 ms.

The rules of Past-Future's comparison (Gong et al., ASPLOS 2025), on lengths like its own: answers
much shorter than allowed (chat), and long answers that fill the memory (reasoning).
"""

import argparse
from dataclasses import dataclass

from support import result
from support.virtual_fleet import Callers, fleet_of, lengths

from antiphon.core.goodput import judge
from antiphon.types import Role, Slo
from antiphon.workload.lengths import Lengths

SLO = Slo(ttft_s=5.0, tpot_s=0.1)
RULES = ("past-future", "conservative", "aggressive")
WARM_UP_S, SECONDS = 30.0, 120.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths, what callers allow for, and rates: where memory begins to matter, and beyond."""

    prompt: Lengths
    output: Lengths
    max_tokens: int
    rates: tuple[float, ...]


WORKLOADS = {
    "chat": Workload(
        lengths("lognormal:mean=512,sd=400,max=2048"),
        lengths("lognormal:mean=200,sd=150,max=1024"),
        2048,
        (4.0, 5.5),
    ),
    "reasoning": Workload(lengths("32-512"), lengths("256-2048"), 4096, (1.0, 1.5)),
}


def measure(workload: Workload, rule: str, rate: float) -> dict[str, object]:
    """One run."""
    callers = Callers(
        tenant="one",
        rate_per_s=rate,
        seconds=SECONDS,
        prompt=workload.prompt,
        output=workload.output,
    )
    fleet, records = fleet_of(
        {Role.MIXED: 1},
        {"scheduler": {"admission": rule}},
        callers.sessions(1, 0),
        SLO,
        max_tokens=workload.max_tokens,
    )
    held: list[float] = []
    evicted: list[int] = []

    def look() -> None:
        (view,) = fleet.views().values()
        held.append(view.held_pages / view.total_pages)
        evicted.append(view.preemptions_total)

    for second in range(int(WARM_UP_S), int(SECONDS)):
        fleet.at(float(second), look)
    fleet.run()
    calls = [one for one in records if WARM_UP_S <= one.due_at_s < SECONDS]
    good = sum(judge(one, SLO).met for one in calls)
    done = [one for one in records if WARM_UP_S <= one.ended_at_s < SECONDS and not one.error]
    seconds = SECONDS - WARM_UP_S
    return {
        "admission": rule,
        "rate_per_s": rate,
        "memory": round(sum(held) / len(held), 4),
        "memory_most": round(max(held), 4),
        "evicted_per_request": round((evicted[-1] - evicted[0]) / max(1, len(done)), 4),
        "goodput_per_s": round(good / seconds, 3),
        "attainment": round(good / max(1, len(calls)), 4),
        "finished_per_s": round(len(done) / seconds, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one workload; no result")
    options = parser.parse_args()
    found: dict[str, list[dict[str, object]]] = {}
    for name, workload in list(WORKLOADS.items())[: 1 if options.quick else None]:
        for rate in workload.rates:
            for rule in RULES:
                row = measure(workload, rule, rate)
                found.setdefault(name, []).append(row)
                print(
                    f"{name:10} {rate:4} requests/s  {rule:13} memory {row['memory']:.1%} "
                    f"(most {row['memory_most']:.1%})  evicted {row['evicted_per_request']:.3f} a "
                    f"request  goodput {row['goodput_per_s']:.2f}/s ({row['attainment']:.1%})  "
                    f"finished {row['finished_per_s']:.2f}/s",
                    flush=True,
                )
    if not options.quick:
        print(result.write("admission", {"ttft_s": 5.0, "tpot_s": 0.1, "workloads": found}))


if __name__ == "__main__":
    main()
