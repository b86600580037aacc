"""Many seeds in many families, in this process or in several."""

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from .cluster_run import STANDARD, Parts, outcome_of, run_cluster
from .drawn_cluster import Family, setup_of
from .scorecard import SeedRun

_BATCH = 8
"""Runs that a process is given at a time."""


def run_seed(seed: int, family: Family, parts: Parts = STANDARD) -> SeedRun:
    """Draw that cluster, run it, and say what came of it."""
    report, broken = outcome_of(lambda: run_cluster(setup_of(seed, family), family, parts))
    return SeedRun(seed, family, report, broken)


def search(
    seeds: range, families: Sequence[Family], *, jobs: int = 1, parts: Parts = STANDARD
) -> Iterator[SeedRun]:
    """Each seed in each family. With more than one job in the order in which they end; a caller
    that stops listening ends the other processes after what they are at."""
    wanted = [(seed, family) for seed in seeds for family in families]
    if jobs == 1:
        yield from (run_seed(seed, family, parts) for seed, family in wanted)
        return
    batches = [wanted[at : at + _BATCH] for at in range(0, len(wanted), _BATCH)]
    context = get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_leave_interrupts)
    try:
        futures: list[Future[list[SeedRun]]] = [
            pool.submit(_run_batch, batch, parts) for batch in batches
        ]
        for future in as_completed(futures):
            yield from future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _run_batch(batch: Sequence[tuple[int, Family]], parts: Parts) -> list[SeedRun]:
    return [run_seed(seed, family, parts) for seed, family in batch]


def _leave_interrupts() -> None:
    """Ctrl-C is for the process that people talk to: it ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
