"""Many seeds in many families, in this process or in several."""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice, product

from antiphon.host.process_pool import process_pool

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
    that stops listening ends the other processes."""
    wanted = product(seeds, families)
    if jobs == 1:
        yield from (run_seed(seed, family, parts) for seed, family in wanted)
        return
    batches = iter(lambda: list(islice(wanted, _BATCH)), [])
    under_way: dict[Future[list[SeedRun]], None] = {}
    with process_pool(jobs) as pool:
        while True:
            for batch in islice(batches, 2 * jobs - len(under_way)):
                under_way[pool.submit(_run_batch, batch, parts)] = None
            if not under_way:
                return
            done = wait(under_way, return_when=FIRST_COMPLETED).done
            for future in [one for one in under_way if one in done]:
                del under_way[future]
                yield from future.result()


def _run_batch(batch: Sequence[tuple[int, Family]], parts: Parts) -> list[SeedRun]:
    return [run_seed(seed, family, parts) for seed, family in batch]
