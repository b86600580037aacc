"""What the store's host tier finds of public traces, by what it evicts first.

    PYTHONPATH=src .venv/bin/python benchmarks/eviction.py            minutes, on one core
    PYTHONPATH=src .venv/bin/python benchmarks/eviction.py --quick    a fifth; keeps no result

Both traces of Mooncake's release go through `HostTier` itself: each request reads the longest
prefix that is there, then puts the rest of its prompt. The token hit rate is the share of all
prompt tokens that were found. "ideal" has room for everything; "clairvoyant" knows the future.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from support import result
from support.trace_replay import TRACES, clairvoyant, replay

from antiphon.core.tiers import PolicyFactory, policy_named
from antiphon.core.tiers.eviction import HitDensity, LeastRecent, RecomputeCost, S3Fifo
from antiphon.types import StoreConfig
from antiphon.workload import TRACE_BLOCK_TOKENS, TraceRow, read_mooncake

SLOTS = (1_000, 5_900, 10_000, 50_000)
TRACE_NAMES = ("conversation", "synthetic")
DEFAULT = StoreConfig().policy

Contestant: TypeAlias = Callable[[Sequence[TraceRow]], PolicyFactory]


def blind(policy: PolicyFactory) -> Contestant:
    """One that does not look at the trace first."""
    return lambda rows: policy


CONTESTANTS: dict[str, Contestant] = {
    **{name: blind(policy_named(name)) for name in ("lru", "s3-fifo", "cost", "hit-density")},
    "s3-fifo, 4 ghosts a block": blind(partial(S3Fifo, ghosts=4.0)),
    "s3-fifo, half of it small": blind(partial(S3Fifo, small_share=0.5, ghosts=4.0)),
    "cost, 1 ghost a block": blind(partial(RecomputeCost, ghosts=1.0)),
    "cost, position counts nothing": blind(partial(RecomputeCost, half_position=1e9)),
    "hit-density, 1 ghost a block": blind(partial(HitDensity, ghosts=1.0)),
    "hit-density, 8 levels": blind(partial(HitDensity, levels=8)),
    "clairvoyant": clairvoyant,
}


def measure(rows: Sequence[TraceRow], contestant: str, slots: int, trace: str) -> dict[str, object]:
    began = time.process_time()
    replayed = replay(rows, slots, CONTESTANTS[contestant](rows))
    took_s = time.process_time() - began
    rate = replayed.token_hit_rate
    print(f"{trace}, {slots} blocks, {contestant}: {rate:.2%}, {took_s:.1f} s", file=sys.stderr)
    return {
        "policy": contestant,
        "slots": slots,
        "token_hit_rate": round(rate, 5),
        "evicted_blocks": replayed.evicted_blocks,
        "cpu_us_per_block": round(took_s * 1e6 / sum(len(row.hash_ids) for row in rows), 2),
    }


def ideal(rows: Sequence[TraceRow]) -> float:
    """With room for everything."""
    return replay(rows, sum(len(row.hash_ids) for row in rows), LeastRecent).token_hit_rate


def rates(runs: Sequence[dict[str, object]], policy: str) -> list[float]:
    """Hit rates of a policy, by number of slots."""
    return [float(str(run["token_hit_rate"])) for run in runs if run["policy"] == policy]


def print_table(trace: str, runs: Sequence[dict[str, object]], best: float) -> None:
    print(f"\n{trace}: token hit rate, ideal {best:.1%}")
    print(f"{'blocks of 512 tokens':32}" + "".join(f"{slots:>9}" for slots in SLOTS))
    for name in CONTESTANTS:
        cells = "".join(f"{rate:>9.1%}" for rate in rates(runs, name))
        print(f"{name:32}{cells}")


def draw(results: dict[str, dict[str, object]]) -> None:
    """Hit rate by size, a panel a trace."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(results), figsize=(9, 3.8))
    for axes, (trace, one) in zip(panels, results.items(), strict=True):
        runs, best = one["runs"], one["ideal"]
        assert isinstance(runs, list)
        for name in ("lru", "s3-fifo", "cost", "hit-density", "clairvoyant"):
            style = {"color": "grey", "linestyle": ":"} if name == "clairvoyant" else {}
            axes.plot(SLOTS, [100 * rate for rate in rates(runs, name)], label=name, **style)
        axes.axhline(100 * float(str(best)), color="grey", linewidth=0.8)
        axes.set(xscale="log", title=trace, xlabel="blocks of 512 tokens", ylabel="token hits, %")
        axes.grid(alpha=0.3)
    panels[-1].legend()
    figure.tight_layout()
    figure.savefig(result.RESULTS / "eviction.svg", metadata={"Date": None})


def falls_short(results: dict[str, dict[str, object]]) -> list[str]:
    """Where the default is not better than LRU (or, with room for nearly all, is worse)."""
    short: list[str] = []
    for trace, one in results.items():
        runs = one["runs"]
        assert isinstance(runs, list)
        pairs = zip(SLOTS, rates(runs, DEFAULT), rates(runs, "lru"), strict=True)
        for slots, ours, lru in pairs:
            if ours < lru or (ours == lru and slots <= 10_000):
                short.append(f"{trace}, {slots} blocks: {ours:.2%} against {lru:.2%}")
    return short


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder of the traces")
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows; no result")
    options = parser.parse_args()
    files = {name: options.traces / f"{name}_trace.jsonl" for name in TRACE_NAMES}
    absent = [str(file) for file in files.values() if not file.exists()]
    if absent:
        print(f"skipped: no {', '.join(absent)} (--traces says where)", file=sys.stderr)
        return
    results: dict[str, dict[str, object]] = {}
    for trace, file in files.items():
        rows = list(read_mooncake(file))
        if options.quick:
            rows = rows[: len(rows) // 5]
        runs = [measure(rows, name, slots, trace) for name in CONTESTANTS for slots in SLOTS]
        results[trace] = {"ideal": round(ideal(rows), 5), "runs": runs}
        print_table(trace, runs, float(str(results[trace]["ideal"])))
    short = falls_short(results)
    print(f"\nthe default ({DEFAULT}) against lru: {'; '.join(short) or 'better'}")
    if options.quick:
        return
    draw(results)
    facts = {"default": DEFAULT, "block_tokens": TRACE_BLOCK_TOKENS, "falls_short": short}
    print(result.write("eviction", {**facts, "traces": results}))


if __name__ == "__main__":
    main()
