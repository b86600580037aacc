"""Which router serves a shared trace best: two live workers, one policy after the other.

    .venv/bin/python benchmarks/routing.py            write results/routing.json and .svg
    .venv/bin/python benchmarks/routing.py --quick    few requests, two set-ups; writes nothing
    .venv/bin/python benchmarks/routing.py --help     rate, length, set-ups

The requests are conversations of Mooncake's trace, a few of all, scaled down: a hash id stands for
fewer tokens, outputs shrink with them, prompts that share ids share text, and arrivals keep the
trace's pattern at a rate that this machine can serve. Each policy gets a fresh cluster of two mixed
workers and the same requests at the same times. Without a store what was computed on one worker is
of use there alone, so that routing decides what is computed again; the last set-up has one, too.
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from support import result
from support.quantiles import quantiles

from antiphon.bench import Client, LoadLimits, LoadResult, Server, run_load
from antiphon.core.goodput import ttft_s
from antiphon.drill import started
from antiphon.types import CallRecord
from antiphon.workload import (
    Session,
    TimedSession,
    TraceAsk,
    TraceRow,
    TraceScale,
    Turn,
    at_rate,
    read_mooncake,
    thinned,
    trace_asks,
)

TRACE = "conversation_trace.jsonl"
TRACES = Path(__file__).resolve().parents[2] / "shared/traces"
SEED = 1
LIMITS = LoadLimits(drain_s=600)
"""A router that can't keep up is measured to its end."""
USE = 0.7
"""Share of the workers' time that the requests would take if none could use another's KV."""
ALONE = 10**6
"""Numbers of the requests by which the rate is found."""


@dataclass(frozen=True)
class Setup:
    """A policy of the router, with or without a store."""

    policy: str
    store: bool = False

    @property
    def name(self) -> str:
        return self.policy + (" + store" if self.store else "")


SETUPS = (
    *map(
        Setup,
        ("random", "round-robin", "least-loaded", "prefix-gated", "overlap-cost", "slo"),
    ),
    Setup("slo", store=True),
)


def requests(options: argparse.Namespace) -> list[TraceAsk]:
    """Some conversations' rows that fit, at the trace's own times."""
    file = options.traces / TRACE
    if not file.exists():
        raise SystemExit(f"{file} is not there: give the folder of the public traces (--traces)")
    scale = TraceScale(
        block_tokens=options.block_tokens,
        output_share=options.block_tokens / 512,
        max_output_tokens=options.max_output,
        max_prompt_tokens=options.max_prompt,
    )
    rows = thinned(read_mooncake(file), options.share, options.seed)
    return list(trace_asks(rows, scale, seed=options.seed, limit=options.requests))


def ideal_hit_share(asks: Sequence[TraceAsk], block_tokens: int) -> float:
    """Share of the prompts' words that come again with an equal beginning: no router finds more."""
    seen: set[int] = set()
    hits = 0
    for ask in asks:
        shared = sum(1 for _ in itertools.takewhile(seen.__contains__, ask.hash_ids))
        hits += min(shared * block_tokens, ask.prompt_words)
        seen.update(ask.hash_ids)
    return hits / sum(ask.prompt_words for ask in asks)


async def seconds_alone(client: Client, asks: Sequence[TraceAsk]) -> float:
    """What a request of median length takes that has a worker to itself: median of three."""
    typical = sorted(asks, key=lambda one: one.prompt_words)[len(asks) // 2]
    took = []
    for number in range(3):
        (alone,) = trace_asks(
            [row_like(typical, 10**5 * (number + 1))],
            TraceScale(block_tokens=32, trace_block_tokens=32, output_share=1.0),
            seed=SEED,
        )
        answer = await client.send(replace(alone.ask, number=ALONE + number))
        took.append(answer.ended_at - answer.sent_at)
    return statistics.median(took)


def row_like(ask: TraceAsk, first_id: int) -> TraceRow:
    """As long as `ask`, with ids that no request has."""
    count = -(-ask.prompt_words // 32)
    ids = tuple(range(first_id, first_id + count))
    return TraceRow(0.0, ask.prompt_words, ask.ask.max_tokens, ids)


async def measure(
    setup: Setup, asks: Sequence[TraceAsk], rate_per_s: float | None, options: argparse.Namespace
) -> dict[str, object]:
    """One cluster under all requests. Without a rate it finds one first."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(f'[router]\npolicy = "{setup.policy}"\n')
        config.flush()
        arguments = ["--config", config.name, "--mixed", "2", "--cores", options.cores]
        arguments += ["--kv-memory", options.kv_memory, "--store", "on" if setup.store else "off"]
        records: list[CallRecord] = []
        async with started(arguments) as target:
            server = Server(url=target.url, model=target.model)
            async with Client(server) as client:
                if rate_per_s is None:
                    rate_per_s = options.rate or 2 * USE / await seconds_alone(client, asks)
                await seconds_alone(client, asks)  # warm
            timed = sessions(at_rate(asks, rate_per_s))
            load = await run_load(server, timed, observe=records.append, limits=LIMITS)
    return summary(setup, records, rate_per_s, load)


def sessions(asks: Iterable[TraceAsk]) -> Iterator[TimedSession]:
    """Each call comes at the trace's time, whatever became of those before it."""
    for number, one in enumerate(asks):
        yield TimedSession(one.at_s, Session(number=number, turns=(Turn(ask=one.ask),)))


def summary(
    setup: Setup, records: Sequence[CallRecord], rate_per_s: float, load: LoadResult
) -> dict[str, object]:
    """What is kept of one run; `hit_share` of the prompts' tokens needed no compute."""
    ttfts = [ttft for record in records if (ttft := ttft_s(record)) is not None]
    prompts = sum(record.prompt_tokens or 0 for record in records)
    return {
        "setup": setup.name,
        "rate_per_s": rate_per_s,
        "failed": load.failed,
        "took_s": load.duration_s,
        "ttft_mean_s": statistics.fmean(ttfts) if ttfts else float("nan"),
        "ttft_s": quantiles(ttfts),
        "hit_share": sum(record.cached_tokens or 0 for record in records) / max(1, prompts),
        "ttfts_s": sorted(round(ttft, 5) for ttft in ttfts),
    }


def line_of(run: dict[str, object]) -> str:
    return (
        f"{run['setup']:14} TTFT mean {run['ttft_mean_s']:6.3f} s  "
        f"p50 {run['ttft_s']['p50']:6.3f}  p99 {run['ttft_s']['p99']:6.3f}  "
        f"hits {run['hit_share']:5.1%}  took {run['took_s']:5.0f} s  failed {run['failed']}"
    )


def draw(runs: Sequence[dict[str, object]]) -> None:
    """The share of requests that wait longer, by wait."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for run in runs:
        ttfts = run["ttfts_s"]
        longer = [1 - place / len(ttfts) for place in range(len(ttfts))]
        label = f"{run['setup']} ({run['hit_share']:.0%} hits)"
        axes.plot(ttfts, longer, label=label, drawstyle="steps-post")
    axes.set(xscale="log", yscale="log", xlabel="time to first token, s")
    axes.set(ylabel="share of requests that wait longer")
    axes.axhline(0.01, color="grey", linewidth=0.8, linestyle=":")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(result.RESULTS / "routing.svg", metadata={"Date": None})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [setup.name for setup in SETUPS]
    parser.add_argument("--share", type=float, default=0.035, help="of conversations (0.035)")
    parser.add_argument("--requests", type=int, help="no more than so many (all)")
    parser.add_argument("--seed", type=int, default=SEED, help="of which conversations (1)")
    parser.add_argument("--rate", type=float, help="requests a second (measured: see USE)")
    parser.add_argument("--block-tokens", type=int, default=32, help="for each hash id (32)")
    parser.add_argument("--max-prompt", type=int, default=2048, help="longer rows are left out")
    parser.add_argument("--max-output", type=int, default=32, help="longer outputs are cut")
    parser.add_argument("--cores", default="0,1", help="one for each worker (0,1)")
    parser.add_argument("--kv-memory", default="256MiB", help="of each worker (256MiB)")
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder of the public traces")
    parser.add_argument("--setups", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument(
        "--quick", action="store_true", help="16 requests, random and slo; no result"
    )
    options = parser.parse_args()
    if options.quick:
        options.requests, options.share, options.setups = 16, 0.003, ["random", "slo"]
    return options


async def main() -> None:
    options = arguments()
    asks = requests(options)
    ideal = ideal_hit_share(asks, options.block_tokens)
    words = statistics.fmean(ask.prompt_words for ask in asks)
    print(f"{len(asks)} requests of {words:.0f} words; ideal hits {ideal:.1%}", file=sys.stderr)
    runs, rate = [], options.rate
    for setup in SETUPS:
        if setup.name in options.setups:
            runs.append(await measure(setup, asks, rate, options))
            rate = runs[-1]["rate_per_s"]
            print(line_of(runs[-1]), file=sys.stderr, flush=True)
    if options.quick:
        return
    draw(runs)
    for run in runs:
        del run["ttfts_s"]
    facts = {"requests": len(asks), "mean_prompt_words": words, "ideal_hit_share": ideal}
    print(result.write("routing", {**facts, "runs": runs}))


if __name__ == "__main__":
    asyncio.run(main())
