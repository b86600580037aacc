"""Runs a cluster under faults and holds every law against what happened."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from traceback import extract_tb

from antiphon.core.faults import MessageFault
from antiphon.core.requests import RequestBook
from antiphon.core.router import STANDARD_PARTS as STANDARD_ROUTER_PARTS
from antiphon.core.router import Parts as RouterParts
from antiphon.errors import BugError
from antiphon.types import Fetched, Outcome, RequestId, Seconds

from ..cluster_setup import ClusterSetup
from ..law import law_of
from ..virtual_cluster import MakeBook, VirtualCluster
from ..worker_parts import STANDARD_WORKER_PARTS, WorkerParts
from .cluster_laws import (
    check_cancels,
    check_drained,
    check_ended,
    check_faults_happened,
    check_index,
    check_leases,
    check_nobody_failed_unasked,
    check_nothing_failed,
    check_tokens,
)
from .drawn_cluster import PATIENCE_S, Family
from .stories import Story, stories_of

REST_AFTER_S: Seconds = PATIENCE_S + 15.0
"""By then all deadlines have passed, and all that waited for them is gone."""

LAWS: Mapping[str, str] = {
    "I1": "each request ends once",
    "I3": "pages add up",
    "I4": "all drains to zero",
    "I5": "no read of wrong KV",
    "I14": "each token is delivered once",
    "I19": "damaged copies are found",
    "I20": "a failover changes nothing",
    "I21": "nothing fails while somebody can serve it",
    "I22": "a leased page is not written",
    "I23": "only its taker uses a lease",
    "I24": "all comes to rest",
    "I25": "the index equals the truth",
    "I35": "a cancel is obeyed",
}
"""What is held against each run, by the numbers of `docs/invariants.md`."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a cluster is made of: the places where tests put in faulty parts, and nobody else."""

    make_book: MakeBook = RequestBook
    worker: WorkerParts = STANDARD_WORKER_PARTS
    router: RouterParts = STANDARD_ROUTER_PARTS


STANDARD = Parts()


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """What a run that broke no law went through.

    `recovery_s`: from the last fault that happened to the end of the last request that was open
    then; None: nothing went wrong, or nobody was there to notice.
    """

    rested_at: Seconds
    recovery_s: Seconds | None
    counts: Counter[str]
    """Faults that happened, outcomes, and what else shows that a run was worth something."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A run broke a law. `problem` says how."""

    law: str
    problem: str


def run_cluster(setup: ClusterSetup, family: Family, parts: Parts = STANDARD) -> ClusterReport:
    """Run a set-up to rest. Raises `BugError` if a law is broken."""
    cluster = _cluster(setup, parts)
    rested_at = cluster.run_to_rest(limit_s=REST_AFTER_S)
    stories = stories_of(cluster.log)
    check_tokens(setup, stories, lossless=family is not Family.HOSTILE)
    check_ended(stories)
    check_leases(cluster.log)
    check_drained(cluster)
    check_index(cluster)
    check_faults_happened(cluster)
    match family:
        case Family.HONEST | Family.STORE:
            check_cancels(cluster, stories)
            check_nothing_failed(cluster.log, stories)
        case Family.IMPATIENT | Family.GATEWAY | Family.HANDOVER:
            check_cancels(cluster, stories)
            check_nobody_failed_unasked(cluster.log, stories)
        case Family.HOSTILE:
            pass  # only safety and an end are promised: an order may come again after an abort
    return ClusterReport(rested_at, _recovery_s(cluster, stories), _counts(cluster, stories))


def broken_by(setup: ClusterSetup, family: Family, parts: Parts = STANDARD) -> Broken | None:
    """How a set-up breaks a law; None: it does not."""
    return outcome_of(lambda: run_cluster(setup, family, parts))[1]


def misfortunes_of(setup: ClusterSetup, parts: Parts = STANDARD) -> Sequence[MessageFault]:
    """What hostile links did by chance in a run. Planned, the same faults give the same run, but
    where one message met with two at once."""
    cluster = _cluster(setup, parts)
    outcome_of(lambda: ClusterReport(cluster.run_to_rest(limit_s=REST_AFTER_S), None, Counter()))
    return cluster.network.misfortunes


def _cluster(setup: ClusterSetup, parts: Parts) -> VirtualCluster:
    return VirtualCluster(setup, make_book=parts.make_book, parts=parts.worker, router=parts.router)


def outcome_of(run: Callable[[], ClusterReport]) -> tuple[ClusterReport | None, Broken | None]:
    """One of the two: the report of a run, or the law that it broke.

    Whatever else a run raises is a find too, and other seeds are to be run all the same.
    """
    try:
        return run(), None
    except BugError as error:
        problem = str(error) or type(error).__name__
        return None, Broken(law_of(problem), problem)
    except Exception as error:  # noqa: BLE001  code that is explored may raise anything
        where = extract_tb(error.__traceback__)[-1]
        kind = type(error).__name__
        return None, Broken(kind, f"{kind} in {where.name} ({where.filename}): {error}")


def _recovery_s(cluster: VirtualCluster, stories: Mapping[RequestId, Story]) -> Seconds | None:
    last = max((one.at for one in cluster.faults.injected), default=None)
    if last is None:
        return None
    open_then = [
        story.settled_at - last
        for story in stories.values()
        if story.settle is not None and story.arrived_at <= last <= story.settled_at
    ]
    return max(open_then, default=None)


def _counts(cluster: VirtualCluster, stories: Mapping[RequestId, Story]) -> Counter[str]:
    counts: Counter[str] = Counter(cluster.faults.counts())
    for _, _, what in cluster.log.entries:
        counts[type(what).__name__] += 1
        if isinstance(what, Fetched):
            counts["fetched tokens"] += what.fetched_tokens
            counts["missing tokens"] += what.missing_tokens
    for story in stories.values():
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
