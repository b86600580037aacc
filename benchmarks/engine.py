"""How fast the engine is: against llama.cpp and OpenVINO GenAI, same cores, same model file.

    python benchmarks/engine.py --prepare         install the peers, measure nothing
    python benchmarks/engine.py                   all rows, about 12 minutes on two quiet cores
    python benchmarks/engine.py --only decode-8   one row (may be repeated); nothing is kept
    python benchmarks/engine.py --quick           two passes a row, to see it work; nothing is kept
    python benchmarks/engine.py --isa avx2        as if the CPU had no AVX-512

The full run is kept in benchmarks/results/engine.json (engine-avx2.json). How it measures and how
to read the table: benchmarks/README.md.
"""

import argparse
import os
import sys
import typing
from collections.abc import Sequence
from pathlib import Path

from support import result

HERE = Path(__file__).parent
# The peers' side imports its neighbours by name: it runs in virtualenvs without this project.
sys.path[:0] = [str(HERE.parent / "src"), str(HERE / "peers")]

import table  # noqa: E402
from environment import PEERS, prepare  # noqa: E402
from race import ISA, Entrant, Failure, Race, Results  # noqa: E402
from rows import ROWS, Row  # noqa: E402

from antiphon.checkpoint import resolve  # noqa: E402
from antiphon.core.device_rules import TORCH_DTYPES  # noqa: E402
from antiphon.types import Key, ModelConfig  # noqa: E402

QUIET_LOAD = 1.3
PASSES, QUICK_PASSES = 5, 2


def main() -> int:
    options = arguments()
    peers = [] if options.no_peers else installed(options.peers)
    if options.prepare:
        return int(len(peers) < len(PEERS))
    cores = sorted(os.sched_getaffinity(0))
    rows = [row for row in ROWS if row.name in (options.only or [one.name for one in ROWS])]
    for row in [row for row in rows if row.cores > len(cores)]:
        say(f"Leaving out {row.name}: it needs {row.cores} cores")
        rows.remove(row)
    load = load_now()
    race = Race(
        entrants=(*(Entrant(f"ours {dtype}", dtype=dtype) for dtype in options.dtype), *peers),
        model=str(resolve("smollm2-135m")),
        folder=options.peers,
        isa=options.isa,
        passes=QUICK_PASSES if options.quick else PASSES,
        # The last ones: the system's own work prefers the first.
        cores=cores[::-1],
        say=say,
    )
    results = measured(race, rows)
    print(table.text(results, race.entrants))
    for line in remarks(results, race, load):
        print(line)
    if options.quick or options.only or options.no_peers:
        say("Not kept: that takes a full run")
    else:
        name = "engine" if options.isa == "native" else f"engine-{options.isa}"
        say(f"Kept in {result.write(name, document(results, race, load))}")
    return int(
        any(
            isinstance(of[f"ours {dtype}"], Failure)
            for of in results.values()
            for dtype in options.dtype
        )
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    listed = "\n".join(f"  {row.name:11} {row.text}" for row in ROWS)
    parser.epilog = f"rows:\n{listed}"
    add = parser.add_argument
    add("--prepare", action="store_true", help="only install the peers")
    add("--quick", action="store_true", help=f"{QUICK_PASSES} passes instead of {PASSES}")
    add("--only", action="append", choices=[row.name for row in ROWS], metavar="ROW")
    add("--isa", choices=list(ISA), default="native", help="instruction set to stay within")
    add("--dtype", action="append", choices=dtypes(), help="ours: all that there are by default")
    add("--no-peers", action="store_true", help="measure ours alone")
    add(
        "--peers",
        type=Path,
        default=Path.home() / ".cache/antiphon/bench-peers",
        metavar="FOLDER",
        help="where the peers' virtualenvs are (%(default)s)",
    )
    options = parser.parse_args()
    options.dtype = options.dtype or dtypes()
    return options


def dtypes() -> list[str]:
    """What the processor's kernels can compute in."""
    hints = typing.get_type_hints(ModelConfig, include_extras=True)
    (key,) = (one for one in hints["dtype"].__metadata__ if isinstance(one, Key))
    return [choice for choice in key.choices if choice not in TORCH_DTYPES]


def installed(folder: Path) -> list[Entrant]:
    """The peers that can take part; the others are told of, and left out."""
    found = []
    for peer in PEERS:
        problem = prepare(peer, folder, say)
        if problem:
            say(f"Leaving out {peer.name}: {problem}")
        else:
            found.append(Entrant(peer.name, peer))
    return found


def measured(race: Race, rows: Sequence[Row]) -> dict[str, Results]:
    results: dict[str, Results] = {}
    for row in rows:
        say(f"{row.text} (load {os.getloadavg()[0]:.2f})")
        results |= race.run(row)
    return results


def load_now() -> float:
    """The load average; a warning nobody overlooks if the machine is busy."""
    load = os.getloadavg()[0]
    if load > QUIET_LOAD:
        say(f"*** The machine is busy: load {load:.2f}. These numbers will be rough. ***")
    return load


def remarks(results: dict[str, Results], race: Race, load: float) -> list[str]:
    """What a reader of the table must know, failures first."""
    lines = [
        f"{row}: {name} failed: {outcome.why}"
        for row, of in results.items()
        for name, outcome in of.items()
        if isinstance(outcome, Failure)
    ]
    lines += [
        f"{one.name} ({one.peer.package}): {one.peer.note}" for one in race.entrants if one.peer
    ]
    lines.append(f"{result.cpu_model()}, {race.isa} instructions, load {load:.2f} at the start")
    if load > QUIET_LOAD:
        lines.append("*** Measured on a busy machine: rough. ***")
    return lines


def document(results: dict[str, Results], race: Race, load: float) -> dict[str, object]:
    return {
        "isa": race.isa,
        "load_before": round(load, 2),
        "quiet": load <= QUIET_LOAD,
        "peers": {one.name: one.peer.package for one in race.entrants if one.peer},
        "rows": {
            row: {
                "unit": {"start": "s", "memory": "MB"}.get(row, "tokens/s"),
                "goal": table.goal(row),
                "ours": {
                    name: round(value, 3)
                    for name, value in table.ratios(row, results, race.entrants).items()
                },
                "measured": {name: outcome.as_json() for name, outcome in of.items()},
            }
            for row, of in results.items()
        },
    }


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
