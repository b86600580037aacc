"""How much long prompts disturb running chats: prefill and decode apart against two mixed workers.

    .venv/bin/python benchmarks/interference.py           write results/interference.json and .svg
    .venv/bin/python benchmarks/interference.py --help    shorter runs, fewer budgets

Both set-ups use the same two cores. Short chats come steadily (open loop); beside them come prompts
of 1,000 tokens at an interval that keeps a core 60 % busy with prefill. What counts is the time
between two tokens of the chats. The mixed workers are measured with several chunk budgets, and the
best one stands for them.
"""

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from support import result
from support.quantiles import quantiles

from antiphon.bench import Answer, Arrival, Client, Server, run_open_loop
from antiphon.drill import started
from antiphon.workload import Ask, AskMix, ask, poisson

LONG_TOKENS = 1000
USE = 0.6
GREEDY = AskMix(
    sampled_share=0.0,
    pair_share=0.0,
    plain_share=0.0,
    penalty_share=0.0,
    min_tokens_share=0.0,
    stop_share=0.0,
    logprobs_share=0.0,
)
CHATS = replace(GREEDY, prompt_words=(15, 40), max_tokens=(40, 80))
LONG = replace(GREEDY, prompt_words=(LONG_TOKENS, LONG_TOKENS), max_tokens=(1, 1))
FIRST_LONG = 10**6
SEED = 1


@dataclass(frozen=True)
class Setup:
    """One way to use the two cores."""

    name: str
    arguments: tuple[str, ...]


SPLIT = Setup("1 prefill, 1 decode", ("--prefill", "1", "--decode", "1"))


def mixed(budget: int) -> Setup:
    """A step takes each running sequence, so a small budget bounds these too."""
    limits = ("--max-batched-tokens", str(budget), "--max-num-seqs", str(min(budget, 64)))
    return Setup(f"2 mixed, budget {budget}", ("--mixed", "2", *limits))


def long_ask(number: int) -> Ask:
    """About 1,000 tokens that no other prompt begins with, and one token of output."""
    return ask(LONG, SEED, FIRST_LONG + number)


def long_prompts(interval_s: float, duration_s: float) -> Iterator[Arrival]:
    for number in itertools.count():
        at = (number + 0.5) * interval_s
        if at >= duration_s:
            return
        yield Arrival(at, long_ask(number))


def chats(rate_per_s: float, duration_s: float) -> Iterator[Arrival]:
    times = itertools.takewhile(lambda at: at < duration_s, poisson(rate_per_s, SEED))
    return (Arrival(at, ask(CHATS, SEED, number)) for number, at in enumerate(times))


async def prefill_seconds(client: Client) -> float:
    """Time to first token of a lone long prompt: the median of three."""
    answers = [await client.send(long_ask(500_000 + number)) for number in range(3)]
    return statistics.median(answer.ended_at - answer.sent_at for answer in answers)


async def measure(
    setup: Setup, options: argparse.Namespace, interval_s: float | None
) -> dict[str, object]:
    arguments = [*setup.arguments, "--cores", options.cores, "--kv-memory", "1GiB"]
    async with (
        started(arguments) as target,
        Client(Server(url=target.url, model=target.model)) as client,
    ):
        if interval_s is None:
            interval_s = await prefill_seconds(client) / USE
        await run_open_loop(client, chats(options.rate, 3.0))  # warm
        arrivals = sorted(
            [*chats(options.rate, options.seconds), *long_prompts(interval_s, options.seconds)],
            key=lambda arrival: arrival.at_s,
        )
        began = time.monotonic()
        answers = await run_open_loop(client, arrivals)
        took_s = time.monotonic() - began
    short = [answer for answer in answers if answer.number < FIRST_LONG]
    long = [answer for answer in answers if answer.number >= FIRST_LONG]
    failed = sum(not answer.ok for answer in answers)
    summary = {
        "setup": setup.name,
        "interval_s": interval_s,
        "failed": failed,
        "took_s": took_s,
        "gap_s": quantiles([gap for answer in short for gap in answer.gaps_s]),
        "chat_ttft_s": quantiles(ttfts(short)),
        "long_ttft_s": quantiles(ttfts(long)),
        "gaps_s": sorted(round(gap, 5) for answer in short for gap in answer.gaps_s),
    }
    print(
        f"{setup.name:24} gap p50 {summary['gap_s']['p50'] * 1e3:6.1f} ms  "
        f"p99 {summary['gap_s']['p99'] * 1e3:6.1f} ms  "
        f"chat TTFT p50 {summary['chat_ttft_s']['p50'] * 1e3:6.0f} ms  "
        f"long TTFT p50 {summary['long_ttft_s']['p50']:5.2f} s  failed {failed}",
        flush=True,
    )
    return summary


def ttfts(answers: Sequence[Answer]) -> list[float]:
    return [answer.ttft_s for answer in answers if answer.ttft_s is not None]


def draw(runs: Sequence[dict[str, object]]) -> None:
    """The share of gaps that are longer, by length: the tail is what users feel."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for run in runs:
        gaps = run["gaps_s"]
        longer = [1 - place / len(gaps) for place in range(len(gaps))]
        axes.plot([gap * 1e3 for gap in gaps], longer, label=run["setup"], drawstyle="steps-post")
    axes.set(xscale="log", yscale="log", xlabel="time between two tokens of a chat, ms")
    axes.set(ylabel="share of gaps that are longer")
    axes.axhline(0.01, color="grey", linewidth=0.8, linestyle=":")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(result.RESULTS / "interference.svg", metadata={"Date": None})


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="load on each set-up")
    parser.add_argument("--rate", type=float, default=0.8, help="chats a second")
    parser.add_argument("--cores", default="0,1", help="the two cores")
    parser.add_argument("--budgets", default="64,128,256,512", help="chunk budgets of mixed")
    parser.add_argument("--dry", action="store_true", help="write no result")
    options = parser.parse_args()
    split = await measure(SPLIT, options, None)
    runs = [split]
    for budget in map(int, options.budgets.split(",")):
        runs.append(await measure(mixed(budget), options, split["interval_s"]))
    best = min(runs[1:], key=lambda run: run["gap_s"]["p99"])
    ratio = split["gap_s"]["p99"] / best["gap_s"]["p99"]
    print(f"p99 gap, apart against the best mixed ({best['setup']}): {ratio:.2f}×")
    if options.dry:
        return
    draw([split, best])
    for run in runs:
        del run["gaps_s"]
    facts = {"use_of_the_prefill_core": USE, "chats_per_s": options.rate, "p99_ratio": ratio}
    print(result.write("interference", {**facts, "runs": runs}))


if __name__ == "__main__":
    asyncio.run(main())
