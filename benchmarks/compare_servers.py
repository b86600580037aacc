"""Servers side by side: the same load on each, one after the other, on the same cores.

    .venv/bin/python benchmarks/compare_servers.py             10 minutes; results/compare_servers.*
    .venv/bin/python benchmarks/compare_servers.py --prepare   install llama.cpp's server, no more
    .venv/bin/python benchmarks/compare_servers.py --seconds 5 to see it work; keeps nothing
    .venv/bin/python benchmarks/compare_servers.py --search    goodput of each as well; hours
    .venv/bin/python benchmarks/compare_servers.py --vllm ~/vllm/bin/python --hf-model FOLDER

Antiphon with two mixed workers, Antiphon with prefill and decode apart, llama.cpp's server and, if
its CPU build is installed, vLLM. The load is `antiphon bench`, a process of its own, on the same
cores. It also works without this script: start a server, run `antiphon bench URL -o NAME`, stop it,
start the next one, and in the end `antiphon bench compare NAME NAME …`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from support import result

HERE = Path(__file__).parent
# The peers' side imports its neighbours by name: it runs in virtualenvs without this project.
sys.path[:0] = [str(HERE.parent / "src"), str(HERE / "peers")]

from environment import LLAMA_CPP, prepare  # noqa: E402
from http_servers import (  # noqa: E402
    MODEL,
    Contender,
    NotServing,
    antiphon,
    llama_cpp,
    serving,
    vllm,
)

from antiphon.checkpoint import resolve  # noqa: E402
from antiphon.report import (  # noqa: E402
    Comparison,
    compare,
    compare_searches,
    open_run,
    open_search,
)
from antiphon.report.plots import Bar, goodput_bars, svg  # noqa: E402
from antiphon.report.run_comparison import goodput_of  # noqa: E402

WORKLOAD = "chat:input=lognormal:mean=100,sd=100,min=8,output=lognormal:mean=40,sd=30,min=8"
SEARCH = "search"
"""The folder, within that of a run, that a search of the same server gets."""
FULL_SECONDS = 60.0
"""Shorter runs are for trying, and are not kept."""


def main() -> int:
    options = arguments()
    problem = prepare(LLAMA_CPP, options.peers, say)
    if problem:
        say(f"Leaving out llama.cpp: {problem}")
    if options.prepare:
        return int(bool(problem))
    with tempfile.TemporaryDirectory(prefix="antiphon-compare-") as name:
        folder = options.output or Path(name)
        entered = contenders(options, with_llama_cpp=not problem)
        done = [one.name for one in entered if ran(one, options, folder)]
        if len(done) < 2:
            say("Fewer than two servers could be measured: there is nothing to compare")
            return 1
        runs = [str(folder / name) for name in done]
        bench("compare", *runs, "-o", str(folder / "comparison.html"))
        searches = [str(folder / name / SEARCH) for name in done if options.search]
        if searches:
            bench("compare", *searches, "-o", str(folder / "goodput.html"))
        if options.seconds >= FULL_SECONDS:
            keep(options, [Path(run) for run in runs], [Path(search) for search in searches])
    return 0


def contenders(options: argparse.Namespace, *, with_llama_cpp: bool) -> list[Contender]:
    """Ours first: the others are compared with it."""
    cores = options.cores
    model = str(resolve("smollm2-135m"))
    found = [
        antiphon("antiphon, 2 mixed", model, cores, "--mixed", str(len(cores))),
        antiphon("antiphon, 1 prefill, 1 decode", model, cores, "--prefill", "1", "--decode", "1"),
    ]
    if with_llama_cpp:
        found.append(llama_cpp(model, cores, options.peers))
    if options.vllm:
        found.append(vllm(options.vllm, options.hf_model))
    else:
        say("Leaving out vLLM: name an environment that has its CPU build (--vllm, --hf-model)")
    return found


def ran(contender: Contender, options: argparse.Namespace, folder: Path) -> bool:
    """Start it, put the load on it, stop it. False, with a line on why: it did not come up."""
    say(f"{contender.name}: {contender.note}")
    load = (
        *("--model", MODEL, "--workload", options.workload, "--slo", options.slo),
        *("--devices", str(len(options.cores)), "--rate", options.rate, "--overwrite"),
    )
    run, search = folder / contender.name, folder / contender.name / SEARCH
    try:
        with serving(contender, options.cores) as url:
            lasts = ("--duration", f"{options.seconds:g}s")
            bench(url, "--title", contender.name, *load, *lasts, "-o", str(run))
            if options.search:
                bench(url, "--find-goodput", "--title", contender.name, *load, "-o", str(search))
    except NotServing as failure:
        say(f"Leaving out {failure}")
        return False
    return True


def bench(*words: str) -> None:
    """`antiphon bench`, whose words go to the terminal."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parent / "src")}
    command = [sys.executable, "-m", "antiphon", "bench", *words]
    if subprocess.run(command, env=environment, check=False).returncode:
        raise SystemExit("antiphon bench failed")


def keep(options: argparse.Namespace, runs: Sequence[Path], searches: Sequence[Path]) -> None:
    """Numbers, ratios, and a plot: of goodput if it was searched for, else of the runs."""
    saved = [open_run(run) for run in runs]
    found = [open_search(search) for search in searches]
    told = [one.goodput.estimate for one in found if one.goodput] or list(map(goodput_of, saved))
    bars = [
        Bar(one.run.title, estimate)
        for one, estimate in zip(saved, told, strict=True)
        if estimate is not None
    ]
    (result.RESULTS / "compare_servers.svg").write_text(svg(goodput_bars(bars)))
    facts = {"workload": options.workload, "rate_per_s": float(options.rate), "slo": options.slo}
    facts["runs"] = rows_of(compare(saved))
    if found:
        facts["goodput"] = rows_of(compare_searches(found, searches))
    print(result.write("compare_servers", facts))


def rows_of(comparison: Comparison) -> dict[str, dict[str, str]]:
    """Each number of each server, and its ratio to the first one's."""
    return {
        row.name: {
            name: f"{cell.text} {cell.against_first}".strip()
            for name, cell in zip(comparison.names, row.cells, strict=True)
        }
        for row in comparison.rows
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="load on each server")
    parser.add_argument("--rate", default="2", help="requests a second")
    parser.add_argument("--workload", default=WORKLOAD, help="as for `antiphon bench`")
    parser.add_argument("--slo", default="ttft=400ms,tpot=40ms", help="as for `antiphon bench`")
    parser.add_argument("--cores", type=cores_in, default=[0, 1], help="of the servers, as 0,1")
    parser.add_argument("--search", action="store_true", help="find the goodput of each, too")
    parser.add_argument("--output", type=Path, help="folder that keeps all runs and the page")
    parser.add_argument("--vllm", type=Path, help="Python of an environment with vLLM")
    parser.add_argument("--hf-model", help="what vLLM is to load: a folder or a hub name")
    parser.add_argument("--prepare", action="store_true", help="only install llama.cpp's server")
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path.home() / ".cache/antiphon/bench-peers",
        help="where the peers' virtualenvs are",
    )
    return parser.parse_args()


def cores_in(text: str) -> list[int]:
    return [int(core) for core in text.split(",")]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
