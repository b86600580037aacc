"""How fast a fleet is simulated: Mooncake's conversation trace on 16, 200 and 1,000 workers.

    .venv/bin/python benchmarks/fleet_speed.py               16 workers; about a minute
    .venv/bin/python benchmarks/fleet_speed.py --all         200 and 1,000 too: an hour
    .venv/bin/python benchmarks/fleet_speed.py --workers 1000 --cells 2    a gateway for each 500
    .venv/bin/python benchmarks/fleet_speed.py --profile     where the time goes, of ten minutes

The trace (12,031 requests, an hour) is multiplied so that each worker has as much to do. Workers
are Llama-3 70B on 4 H800 each, half of them prefill and half decode, with the live router,
scheduler, book and leases. Goals: 16 workers in 60 s on one core; 200 in 10 minutes; 1,000 in 40
minutes and 6 GB.
"""

import argparse
import cProfile
import pstats
import resource
import time
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from support import result
from support.mooncake_fleet import TRACE, mooncake_fleet

from antiphon.host.process_pool import process_pool
from antiphon.sim.fleet import Fleet, TraceLoad
from antiphon.types import CallRecord, Role, Slo

SLO = Slo(ttft_s=10.0, tpot_s=0.1)
GOALS_S = {16: 60.0, 200: 600.0, 1000: 2400.0}


def fleet_of(
    workers: int, trace: Path, seconds: float, cell: int = 0, cells: int = 1
) -> tuple[Fleet, list[CallRecord]]:
    """A fleet whose load a worker is that of 16 workers under the trace; or one cell of it."""
    load = TraceLoad(copies=len(range(cell, _copies(workers), cells)), duration_s=seconds)
    half = workers // cells // 2
    roles = {Role.PREFILL: half, Role.DECODE: half}
    return mooncake_fleet(roles, trace, load, SLO, seed=1 + cell)


def _copies(workers: int) -> int:
    """How often the trace is played."""
    return max(1, round(workers / 16))


def _undividable(workers: int, cells: int) -> str | None:
    """Why there is no such fleet in so many cells; None: there is."""
    if cells < 1:
        return f"--cells {cells}: at least one"
    if workers < 1 or workers % (2 * cells):
        return (
            f"--workers {workers}: half of each cell prefill and half decode, so that it must be a "
            f"multiple of {2 * cells}"
        )
    if cells > _copies(workers):
        return (
            f"--cells {cells}: the trace is played once for each 16 workers, and each cell needs "
            f"it once: at most {_copies(workers)} for {workers}"
        )
    return None


def measure(
    workers: int, trace: Path, seconds: float, cell: int = 0, cells: int = 1
) -> dict[str, object]:
    """One run, in this process."""
    begun = time.process_time()
    fleet, records = fleet_of(workers, trace, seconds, cell, cells)
    fleet.run(on_progress=lambda now: print(f"\r  {now:6.0f} s", end="", flush=True))
    took_s = time.process_time() - begun
    tokens = sum(one.output_tokens for one in records)
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    digest = _digest(records)
    print(
        f"\r{workers // cells:5} workers: {len(records)} requests, {tokens} tokens "
        f"in {took_s:.1f} s of CPU ({took_s / max(1, len(records)) * 1e3:.2f} ms a request), "
        f"{memory_mb:.0f} MB; records {digest}"
    )
    return {
        "requests": len(records),
        "failed": sum(one.error is not None for one in records),
        "output_tokens": tokens,
        "cpu_s": took_s,
        "goal_s": GOALS_S.get(workers),
        "peak_memory_mb": memory_mb,
        "records_digest": digest,
    }


def _digest(records: Iterable[CallRecord]) -> str:
    """Of all that calls saw, to the last bit, in the order in which they ended.

    What only makes simulations faster leaves it as it is.
    """
    digest = blake2b(digest_size=8)
    for one in records:
        digest.update(repr(one).encode())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="200 and 1,000 workers too")
    parser.add_argument("--workers", type=int, help="this many only; nothing is kept")
    parser.add_argument("--cells", type=int, default=1, help="divide the fleet into so many")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of the trace")
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--profile", action="store_true", help="16 workers under cProfile")
    options = parser.parse_args()
    workers = options.workers
    if workers is None:
        workers = 16 if options.cells == 1 else 1000
    if (problem := _undividable(workers, options.cells)) is not None:
        parser.error(problem)
    if options.profile and options.cells > 1:
        parser.error("--profile: of a fleet that is not divided, leave out --cells")
    if options.profile:
        with cProfile.Profile(time.process_time) as profile:
            measure(workers, options.trace, min(options.seconds, 600.0))
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
        return
    if options.cells > 1:
        found = _cells(workers, options.trace, options.seconds, options.cells)
        if options.seconds >= 3600:
            print(f"Kept in {result.write('fleet_cells', found)}")
        return
    if options.workers is not None or options.seconds < 3600:
        measure(workers, options.trace, options.seconds)
        return
    sizes = tuple(GOALS_S) if options.all else (16,)
    found = {str(workers): _apart(workers, options.trace) for workers in sizes}
    print(f"Kept in {result.write('fleet_speed', {'runs': found})}")


def _cells(workers: int, trace: Path, seconds: float, cells: int) -> dict[str, object]:
    """All cells at once, each in a process of its own."""
    begun = time.monotonic()
    with process_pool(cells) as pool:
        runs = [pool.submit(measure, workers, trace, seconds, cell, cells) for cell in range(cells)]
        found = [run.result() for run in runs]
    took_s = time.monotonic() - begun
    print(f"{workers} workers in {cells} cells: {took_s:.0f} s until all were over")
    return {"workers": workers, "took_s": took_s, "goal_s": GOALS_S.get(workers), "cells": found}


def _apart(workers: int, trace: Path) -> dict[str, object]:
    """In a process of its own, so that the memory is its own."""
    with process_pool(1) as pool:
        return pool.submit(measure, workers, trace, 3600.0).result()


if __name__ == "__main__":
    main()
