"""Placement: DistServe's own table, split against colocated, and two kinds of devices (Splitwise).

    .venv/bin/python benchmarks/placement.py               all parts at reduced length, ≤ 15 minutes
    .venv/bin/python benchmarks/placement.py distserve     OPT-13B on A100, with its coefficients
    .venv/bin/python benchmarks/placement.py ratio         split : colocated for three applications
    .venv/bin/python benchmarks/placement.py tight         the same for chat, with less time a token
    .venv/bin/python benchmarks/placement.py splitwise     H100 and A100 on the Azure traces
    … --full                                               all rows, longer runs, three seeds: hours

Each part writes a JSON file to `results/` and prints its table. All goodputs are simulated with the
live router, scheduler and hand-over; the times of steps are DistServe's where the model is OPT-13B,
and `perf`'s roofline elsewhere. Reduced length: runs of 10 s or more and at least 80 calls after a
warm-up of one usual call, goodput to 10 %, one seed, the two most promising candidates of each way
by closed forms, cells of two devices where the model fits. Differences below a fifth say nothing.
"""

import argparse
import sys
import time
from pathlib import Path

from support import result
from support.placement_distserve import distserve
from support.placement_ratio import ratio, tight
from support.placement_splitwise import splitwise
from support.placements import Effort

from antiphon.sim.placing import TrialEffort

TRACES = Path(__file__).resolve().parents[2] / "shared/traces"
PARTS = ("distserve", "ratio", "tight", "splitwise")


def effort_of(options: argparse.Namespace) -> Effort:
    trial = TrialEffort(run_s=10.0, least_calls=80, tolerance=0.1, lives=0.5)
    if options.full:
        trial = TrialEffort(run_s=60.0, least_calls=300, tolerance=0.05)
    return Effort(
        trial=trial,
        candidates=options.candidates or (6 if options.full else 2),
        seeds=options.seeds or (3 if options.full else 1),
        processes=options.processes,
        full=options.full,
    )


def run(part: str, effort: Effort, traces: Path) -> None:
    print(f"── {part}", flush=True)
    begun = time.monotonic()
    match part:
        case "distserve":
            found = distserve(effort)
        case "ratio":
            found = ratio(effort)
        case "tight":
            found = tight(effort)
        case _:
            if not traces.is_dir():
                print(f"No traces in {traces}: give --traces FOLDER", file=sys.stderr)
                return
            found = splitwise(effort, traces)
    took_s = time.monotonic() - begun
    kept = {**effort.row(), **found, "took_s": round(took_s)}
    print(f"Kept in {result.write(f'placement_{part}', kept)} after {took_s:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=[*PARTS, "all"], nargs="?", default="all")
    parser.add_argument("--full", action="store_true", help="all rows, longer runs, three seeds")
    parser.add_argument("--seeds", type=int, help="goodputs of each; their median")
    parser.add_argument("--candidates", type=int, help="of each way, so many are simulated")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--traces", type=Path, default=TRACES, help="Azure's CSV files")
    options = parser.parse_args()
    effort = effort_of(options)
    for part in PARTS if options.part == "all" else (options.part,):
        run(part, effort, options.traces)


if __name__ == "__main__":
    main()
