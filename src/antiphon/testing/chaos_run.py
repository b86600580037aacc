"""Runs drawn clusters under faults and holds every law against what happened.

python -m antiphon.testing.chaos_run --count 2000 [--first 0] [--family honest]
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from antiphon.core.faults import plan_text
from antiphon.core.requests import RequestBook
from antiphon.core.router import STANDARD_PARTS
from antiphon.core.router import Parts as RouterParts
from antiphon.errors import BugError
from antiphon.sim import STANDARD_WORKER_PARTS, WorkerParts
from antiphon.sim.cluster_setup import ClusterSetup
from antiphon.sim.virtual_cluster import MakeBook, VirtualCluster
from antiphon.types import Fetched, Outcome, Seconds

from .chaos import PATIENCE_S, Family, setup_of
from .cluster_laws import (
    check_drained,
    check_ended,
    check_faults_happened,
    check_index,
    check_leases,
    check_nobody_failed_unasked,
    check_nothing_failed,
    check_tokens,
    stories_of,
)

T = TypeVar("T")
REST_AFTER_S: Seconds = PATIENCE_S + 15.0
"""By then all deadlines have passed, and all that waited for them is gone."""


@dataclass(frozen=True, slots=True)
class ChaosReport:
    """What a run that broke no law went through."""

    rested_at: Seconds
    counts: Counter[str]
    """Faults that happened, outcomes, and what else shows that a run was worth something."""


def run_cluster(
    setup: ClusterSetup,
    family: Family,
    *,
    make_book: MakeBook = RequestBook,
    parts: WorkerParts = STANDARD_WORKER_PARTS,
    router: RouterParts = STANDARD_PARTS,
) -> ChaosReport:
    """Run a set-up to rest. Raises `BugError` if a law is broken."""
    cluster = VirtualCluster(setup, make_book=make_book, parts=parts, router=router)
    rested_at = cluster.run_to_rest(limit_s=REST_AFTER_S)
    stories = stories_of(cluster.log)
    check_tokens(setup, stories, lossless=family is not Family.HOSTILE)
    check_ended(stories)
    check_leases(cluster.log)
    check_drained(cluster)
    check_index(cluster)
    check_faults_happened(cluster)
    match family:
        case Family.HONEST:
            check_nothing_failed(cluster.log, stories)
        case Family.IMPATIENT | Family.GATEWAY:
            check_nobody_failed_unasked(cluster.log, stories)
        case Family.HOSTILE:
            pass  # only safety and an end are promised
    return ChaosReport(rested_at, _counts(cluster))


def breaks_law(
    setup: ClusterSetup,
    family: Family,
    *,
    make_book: MakeBook = RequestBook,
    parts: WorkerParts = STANDARD_WORKER_PARTS,
) -> str | None:
    """How a set-up breaks a law; None: it does not."""
    try:
        run_cluster(setup, family, make_book=make_book, parts=parts)
    except BugError as problem:
        return str(problem) or type(problem).__name__
    return None


def shrunk(setup: ClusterSetup, still_fails: Callable[[ClusterSetup], bool]) -> ClusterSetup:
    """The set-up with as few faults and calls as one can leave out one by one, and still fail."""
    while True:
        faults = setup.faults.faults
        smaller = [
            *(
                replace(setup, faults=replace(setup.faults, faults=fewer))
                for fewer in _less(faults)
            ),
            *(replace(setup, stimuli=fewer) for fewer in _less(setup.stimuli)),
        ]
        found = next((one for one in smaller if still_fails(one)), None)
        if found is None:
            return setup
        setup = found


def _less(items: tuple[T, ...]) -> Iterable[tuple[T, ...]]:
    return (items[:at] + items[at + 1 :] for at in range(len(items)))


def _counts(cluster: VirtualCluster) -> Counter[str]:
    counts: Counter[str] = Counter(cluster.faults.counts())
    for _, _, what in cluster.log.entries:
        counts[type(what).__name__] += 1
        if isinstance(what, Fetched):
            counts["fetched tokens"] += what.fetched_tokens
            counts["missing tokens"] += what.missing_tokens
    for story in stories_of(cluster.log).values():
        if story.settle is not None:
            record = story.settle.record
            counts[f"outcome {record.outcome.value}"] += 1
            counts["attempts after the first"] += record.attempts - 1
            counts["pulled tokens"] += record.pulled_tokens
            counts["recomputed tokens"] += record.recomputed_tokens
            counts["finished after a failover"] += (
                record.attempts > 1 and record.outcome is Outcome.FINISHED
            )
    return counts


def main(arguments: list[str]) -> int:
    """Run many seeds; print the sums, and of each that breaks a law the smallest run that does."""
    parser = ArgumentParser(prog="python -m antiphon.testing.chaos_run", description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--family", type=Family, choices=tuple(Family), action="append")
    options = parser.parse_args(arguments)
    total: Counter[str] = Counter()
    broken = 0
    for seed in range(options.first, options.first + options.count):
        for family in options.family or Family:
            setup = setup_of(seed, family)
            try:
                total += run_cluster(setup, family).counts
            except BugError as problem:
                broken += 1
                sys.stdout.write(f"seed {seed}, {family}: {problem}\n{_smallest(setup, family)}\n")
    for name, count in sorted(total.items()):
        sys.stdout.write(f"{count:>9} {name}\n")
    sys.stdout.write(f"{broken} of {options.count} seeds x families broke a law\n")
    return 1 if broken else 0


def _smallest(setup: ClusterSetup, family: Family) -> str:
    small = shrunk(setup, lambda one: breaks_law(one, family) is not None)
    stimuli = "\n".join(map(repr, small.stimuli))
    return f"{breaks_law(small, family)}\n{plan_text(small.faults)}{stimuli}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
