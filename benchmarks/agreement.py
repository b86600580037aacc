"""Whether three load tools say the same of one server: ours, AIPerf and GuideLLM.

    .venv/bin/python benchmarks/agreement.py --prepare   once: the peers' virtualenvs
    .venv/bin/python benchmarks/agreement.py             15 minutes on two quiet cores;
                                                         writes results/agreement.json
    .venv/bin/python benchmarks/agreement.py --help      smaller loads, other servers

The server has the first core, the tools have the others. The load is the same for all: prompts of
so many words, answers of so many tokens, sent at even times, streamed. The tools take turns for
some rounds. Each run has prompts of its own (as long as those of the others), so that nobody
profits from what the server has cached. What a tool says of each request (when it was sent, when
its first and its last token came) is reduced to numbers by one code, so what differs is what the
tools saw. TTFT counts from when a tool sent a request, as the peers count it.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from support.quantiles import quantiles
from support.result import write

from antiphon.bench import Server, probe
from antiphon.core.draws import Draws
from antiphon.drill import started
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_hf_folder
from antiphon.workload.asks import WORDS

HERE = Path(__file__).parent
sys.path.append(str(HERE / "peers"))
from environment import LOAD_TOOLS, prepare  # noqa: E402
from load_tools import OURS, Failed, SameLoad, Target, ToolRun, run_tool  # noqa: E402

SEED = 5
GOAL = 0.05
WARM = 8
"""Requests before the first run: a server's first steps are slower than all others."""


async def main() -> None:
    options = _options()
    tools = [OURS]
    for peer in LOAD_TOOLS:
        if problem := prepare(peer, options.venvs, print):
            print(f"{peer.name} is left out: {problem}")
        else:
            tools.append(peer.name)
    if options.prepare:
        return
    found: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="antiphon-agreement-") as name:
        folder = Path(name)
        write_hf_folder(folder / "tokenizer", TINY_SPEC, random_tensors(TINY_SPEC, 0))
        cores = sorted(os.sched_getaffinity(0))
        # A tool that computes much must not slow down what it measures.
        os.sched_setaffinity(0, cores[:1])
        async with served(options, folder) as target:
            os.sched_setaffinity(0, cores[1:] or cores)
            await _run(OURS, load_of(options, "warm", WARM), target, folder / "warm", options)
            for turn in range(options.rounds):
                for tool in tools:
                    load = load_of(options, f"{tool} {turn}", options.requests)
                    place = folder / f"{tool}-{turn}"
                    run = await _run(tool, load, target, place, options)
                    found[tool].append(summary(run, options.requests))
    compare(found)
    if options.requests >= _REQUESTS:
        told = ("quantize", "rate", "words", "tokens", "requests")
        setup = {name: getattr(options, name) for name in told}
        kept = "agreement" if options.quantize == "int8" else "agreement_fp32"
        print(write(kept, {"setup": setup, "runs": found}))


async def _run(
    tool: str, load: SameLoad, target: Target, folder: Path, options: argparse.Namespace
) -> ToolRun:
    try:
        return await asyncio.to_thread(run_tool, tool, load, target, folder, options.venvs)
    except Failed as failure:
        raise SystemExit(str(failure)) from None


@contextlib.asynccontextmanager
async def served(options: argparse.Namespace, folder: Path) -> AsyncIterator[Target]:
    """The server that was named, or one of our own."""
    if options.url:
        probed = await probe(Server(url=options.url, model=options.model))
        yield Target(url=options.url, model=probed.server.model, tokenizer=folder / "tokenizer")
        return
    model = options.model or "smollm2-135m"
    async with started([model, "--quantize", options.quantize, "--kv-memory", "1GiB"]) as target:
        yield Target(url=target.url, model=target.model, tokenizer=folder / "tokenizer")


def load_of(options: argparse.Namespace, run: str, requests: int) -> SameLoad:
    """Prompts that no other run has, of the same length."""
    draws = Draws(SEED)

    def prompt(number: int) -> str:
        words = (draws.choice(WORDS, run, number, place) for place in range(options.words))
        return " ".join(words)

    prompts = tuple(prompt(number) for number in range(requests))
    return SameLoad(prompts=prompts, max_tokens=options.tokens, rate_per_s=options.rate)


def summary(run: ToolRun, requests: int) -> Mapping[str, float]:
    """What a tool saw, as a few numbers."""
    ttft, tpot = quantiles(run.ttfts()), quantiles(run.tpots())
    return {
        "TTFT p50 (ms)": ttft["p50"] * 1e3,
        "TTFT p90 (ms)": ttft["p90"] * 1e3,
        "TPOT p50 (ms)": tpot["p50"] * 1e3,
        "TPOT p90 (ms)": tpot["p90"] * 1e3,
        "tokens/s": run.tokens_per_s(),
        "requests that went well": len(run.outcomes) / requests * 100,
        "CPU seconds": run.cpu_s,
    }


_TOLD = ("CPU seconds", "requests that went well")
"""Beside the numbers that are to agree."""


def compare(found: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Print the medians over rounds, and how far each tool's are from ours."""
    print(f"{'':24}" + "".join(f"{tool:>22}" for tool in found))
    worst = 0.0
    for name in found[OURS][0]:
        middle = {tool: median(run[name] for run in runs) for tool, runs in found.items()}
        cells = []
        for value in middle.values():
            off = value / middle[OURS] - 1
            worst = worst if name in _TOLD else max(worst, abs(off))
            cells.append(f"{value:>13.2f} {'' if name in _TOLD else f'({off:+.1%})':>8}")
        print(f"{name:24}" + "".join(cells))
    print(f"The largest difference is {worst:.1%} (goal: within {GOAL:.0%})")


_REQUESTS = 60


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prepare", action="store_true", help="install the peers, no more")
    parser.add_argument("--url", help="a server that runs already; default: one of our own")
    parser.add_argument("--model", default="", help="which of its models, or which to serve")
    parser.add_argument(
        "--quantize",
        default="int8",
        help="of the model that is served (int8): with none a token takes longer, and what a tool "
        "adds to it is a smaller part",
    )
    parser.add_argument("--rate", type=float, default=1.0, help="requests a second")
    parser.add_argument("--requests", type=int, default=_REQUESTS, help="of each run")
    parser.add_argument("--words", type=int, default=100, help="of each prompt")
    parser.add_argument("--tokens", type=int, default=48, help="of each answer")
    parser.add_argument("--rounds", type=int, default=3, help="in which each tool runs once")
    parser.add_argument(
        "--venvs",
        type=Path,
        default=Path("~/.cache/antiphon/bench-peers").expanduser(),
        help="where the peers' virtualenvs are",
    )
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main())
