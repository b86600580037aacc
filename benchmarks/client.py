"""How many streamed tokens a second the client takes on one core, beside AIPerf and GuideLLM.

    .venv/bin/python benchmarks/client.py --prepare   once: the peers, in virtualenvs of their own
    .venv/bin/python benchmarks/client.py             measure, write results/client.json
    .venv/bin/python benchmarks/client.py --quick     low rates, few tokens; writes nothing

A scripted server on one core streams to 200 users at once, one token a segment, at a rate that
rises from row to row. The tool is on the other core with all its processes. "taken": the tokens a
second from the first token to the last, as the tool saw them, against what the script planned: a
client that can't keep up sees tokens later than they were written. "TPOT off": how far its median
is from the script's. "CPU a token": CPU time above that of a run of two requests, for the starts of
some tools take half a minute of it.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from support.quantiles import quantiles
from support.result import write

from antiphon.testing.scripted_calls import Behaviour, Script
from antiphon.testing.scripted_server import scripted_server
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_hf_folder

HERE = Path(__file__).parent
sys.path.append(str(HERE / "peers"))
from environment import LOAD_TOOLS, prepare  # noqa: E402
from load_tools import OURS, Failed, SameLoad, Target, ToolRun, run_tool  # noqa: E402

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, TOOL_CORE = CORES[0], CORES[-1]
USERS = 200
TTFT_S = 2.0
"""Time for all users to come before the first token does."""
SECONDS = 8.0
"""Streamed at each rate."""
GAPS_S = (0.04, 0.02, 0.01, 0.005, 0.0025)
MODEL = "m"


@dataclass(frozen=True)
class Row:
    """What one tool took of one offered rate."""

    tool: str
    offered_per_s: float
    taken_per_s: float
    tpot_off: float
    cpu_us_a_token: float
    failed: int


def main() -> None:
    options = _options()
    tools = [OURS, *_installed(options.venvs)]
    tools = [tool for tool in tools if tool in options.tools]
    if options.prepare:
        return
    gaps = GAPS_S[:2] if options.quick else GAPS_S
    seconds = 1.0 if options.quick else SECONDS
    rows: list[Row] = []
    print(f"{'tool':>10} {'offered/s':>10} {'taken/s':>10} {'TPOT off':>9} {'CPU a token':>12}")
    with tempfile.TemporaryDirectory(prefix="antiphon-client-") as name:
        folder = Path(name)
        write_hf_folder(folder / "tokenizer", TINY_SPEC, random_tensors(TINY_SPEC, 0))
        for tool in tools:
            for row in measured(tool, gaps, seconds, folder, options.venvs):
                rows.append(row)
                print(
                    f"{row.tool:>10} {row.offered_per_s:>10,.0f} {row.taken_per_s:>10,.0f} "
                    f"{row.tpot_off:>8.1%} {row.cpu_us_a_token:>9.1f} us"
                    + (f"  {row.failed} failed" if row.failed else ""),
                    flush=True,
                )
    if not options.quick and {row.tool for row in rows} == {OURS, *(p.name for p in LOAD_TOOLS)}:
        print(write("client", {"rows": [asdict(row) for row in rows]}))


def measured(
    tool: str, gaps: Sequence[float], seconds: float, folder: Path, venvs: Path
) -> Iterator[Row]:
    """Rows of one tool at rising rates, until it takes less than half of what is offered."""

    def run(name: str, users: int, gap_s: float, tokens: int) -> ToolRun:
        behaviour = Behaviour(ttft_s=TTFT_S, gap_s=gap_s)
        with scripted_server(Script(models={MODEL: behaviour}), SERVER_CORE) as server:
            prompts = tuple(f"Prompt number {number}" for number in range(users))
            load = SameLoad(prompts=prompts, max_tokens=tokens, rate_per_s=users / (TTFT_S / 2))
            target = Target(url=server.url, model=MODEL, tokenizer=folder / "tokenizer")
            return run_tool(tool, load, target, folder / f"{tool}-{name}", venvs, [TOOL_CORE])

    try:
        start_s = run("start", 2, 0.01, 2).cpu_s
        for gap_s in gaps:
            tokens = int(seconds / gap_s)
            done = run(f"{gap_s}", USERS, gap_s, tokens)
            count = sum(one.tokens for one in done.outcomes)
            offered = USERS / gap_s
            first = min(one.first_s for one in done.outcomes)
            last = max(one.last_s for one in done.outcomes)
            # What the script plans between the first user's first token and the last one's last.
            planned_s = TTFT_S / 2 + (tokens - 1) * gap_s
            taken = offered * min(1.0, planned_s / (last - first)) * count / (USERS * tokens)
            yield Row(
                tool=tool,
                offered_per_s=offered,
                taken_per_s=taken,
                tpot_off=quantiles(done.tpots())["p50"] / gap_s - 1.0,
                cpu_us_a_token=(done.cpu_s - start_s) / count * 1e6,
                failed=USERS - len(done.outcomes),
            )
            if taken < 0.5 * offered:
                return
    except Failed as failure:
        print(f"{tool} is left out from here on: {failure}")


def _installed(venvs: Path) -> Iterator[str]:
    for peer in LOAD_TOOLS:
        if problem := prepare(peer, venvs, print):
            print(f"{peer.name} is left out: {problem}")
        else:
            yield peer.name


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prepare", action="store_true", help="install the peers, no more")
    parser.add_argument("--quick", action="store_true", help="low rates, few tokens")
    everyone = [OURS, *(peer.name for peer in LOAD_TOOLS)]
    parser.add_argument("--tools", nargs="+", choices=everyone, default=everyone)
    parser.add_argument(
        "--venvs",
        type=Path,
        default=Path("~/.cache/antiphon/bench-peers").expanduser(),
        help="where the peers' virtualenvs are",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
