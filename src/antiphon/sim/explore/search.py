"""Many seeds in many families, in this process or in several."""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice, product
from multiprocessing import get_context

from antiphon.host import end_with_parent

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
    wanted = product(seeds, families)
    if jobs == 1:
        yield from (run_seed(seed, family, parts) for seed, family in wanted)
        return
    context = get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=end_with_parent)
    batches = iter(lambda: list(islice(wanted, _BATCH)), [])
    under_way: dict[Future[list[SeedRun]], None] = {}
    try:
        while True:
            for batch in islice(batches, 2 * jobs - len(under_way)):
                under_way[pool.submit(_run_batch, batch, parts)] = None
            if not under_way:
                return
            done = wait(under_way, return_when=FIRST_COMPLETED).done
            for future in [one for one in under_way if one in done]:
                del under_way[future]
                yield from future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _run_batch(batch: Sequence[tuple[int, Family]], parts: Parts) -> list[SeedRun]:
    return [run_seed(seed, family, parts) for seed, family in batch]
