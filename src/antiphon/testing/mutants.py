"""Clusters with one faulty part each, and where `antiphon sim explore` finds it.

`benchmarks/mutants.py` searches for the first seed of each; a test runs these.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from antiphon.core.router import Parts as RouterParts
from antiphon.sim import WorkerParts
from antiphon.sim.explore.cluster_run import Parts
from antiphon.sim.explore.drawn_cluster import Family

from .faulty_cluster import (
    BelievesStore,
    ForgetsRelease,
    Unfenced,
    book_that_forgets_cancels,
    book_that_ignores_attempts,
    book_that_loses_resume_points,
    book_that_takes_repeats,
    index_that_never_asks,
    workers_with,
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A faulty part, the law that finds it, and the first seed of all families to break it."""

    parts: Parts
    law: str
    seed: int
    family: Family


MUTANTS: Mapping[str, Mutant] = {
    "fencing off": Mutant(Parts(worker=WorkerParts(taker=Unfenced)), "I5", 1, Family.STORE),
    "a release lost": Mutant(Parts(worker=workers_with(ForgetsRelease)), "I24", 0, Family.HONEST),
    "a token twice": Mutant(Parts(make_book=book_that_takes_repeats), "I14", 10, Family.HOSTILE),
    "a cancel forgotten": Mutant(
        Parts(make_book=book_that_forgets_cancels), "I35", 5, Family.HANDOVER
    ),
    "a store believed": Mutant(
        Parts(worker=WorkerParts(store=BelievesStore)), "I5", 21, Family.STORE
    ),
    "a resume point lost": Mutant(
        Parts(make_book=book_that_loses_resume_points), "I14", 0, Family.HONEST
    ),
    "attempts ignored": Mutant(
        Parts(make_book=book_that_ignores_attempts), "I14", 6, Family.HOSTILE
    ),
    "gaps not asked for": Mutant(
        Parts(router=RouterParts(index=index_that_never_asks)), "I25", 4, Family.HOSTILE
    ),
}
