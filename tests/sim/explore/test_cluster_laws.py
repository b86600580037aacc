"""Every law of a cluster, under seeded faults of every kind; and faulty parts that must be found.

Thousands of seeds by hand: `antiphon sim explore --seeds 2000`.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from antiphon.core.faults import FaultPlan, Kind
from antiphon.core.router import Parts as RouterParts
from antiphon.errors import BugError
from antiphon.sim import (
    Call,
    StoreSide,
    StoreSpec,
    VirtualCluster,
    WorkerParts,
)
from antiphon.sim.explore.cluster_laws import undisturbed
from antiphon.sim.explore.cluster_run import ClusterReport, Parts, run_cluster
from antiphon.sim.explore.drawn_cluster import Family, setup_of
from antiphon.sim.explore.stories import stories_of
from antiphon.sim.law import LawBroken
from antiphon.testing.faulty_cluster import (
    ForgetsRelease,
    TakesAnybody,
    Unfenced,
    book_that_ignores_attempts,
    book_that_loses_resume_points,
    index_that_never_asks,
    workers_with,
)

SEEDS = {
    Family.HONEST: (*range(100), 387, 619),
    Family.IMPATIENT: range(100),
    Family.GATEWAY: range(50),
    Family.HOSTILE: range(80),
    Family.STORE: range(40),
    Family.HANDOVER: range(80),
}
SLICES = 6


@cache
def report_of(family: Family, part: int) -> Counter[str]:
    """Run a part of a family's seeds. Raises `BugError` if a law is broken."""
    total: Counter[str] = Counter()
    for seed in SEEDS[family][part::SLICES]:
        try:
            total += run_cluster(setup_of(seed, family), family).counts
        except BugError as problem:
            raise AssertionError(f"seed {seed}, {family}: {problem}") from problem
    return total


@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("family", Family)
def test_all_laws_hold_under_faults(family: Family, part: int) -> None:
    assert report_of(family, part)["Settle"] > 0


def test_the_runs_reach_what_they_are_for() -> None:
    """Each kind of fault, failovers, pulls that fail, drains: else laws are idle."""
    seen: Counter[str] = Counter()
    for family in Family:
        for part in range(SLICES):
            seen += report_of(family, part)
    for kind in Kind:
        assert seen[kind.value] >= 10, f"{kind} hardly ever happens"
    for what in (
        *("finished after a failover", "recomputed tokens", "Release", "Renew", "Drained"),
        *("Turned", "outcome cancelled", "outcome deadline"),
    ):
        assert seen[what] >= 10, f"{what} hardly ever happens"
    assert seen["pulled tokens"] > 1000
    assert seen["outcome finished"] > seen["Settle"] / 2


@pytest.mark.parametrize("seed", range(20))
def test_without_faults_nothing_is_tried_twice_or_computed_twice(seed: int) -> None:
    setup = setup_of(seed, Family.HONEST, faults=FaultPlan(seed))
    counts = run_cluster(setup, Family.HONEST).counts
    assert counts["outcome finished"] == counts["Arrived"] > 0
    assert counts["attempts after the first"] == 0
    assert counts["recomputed tokens"] == 0


def test_a_run_comes_to_rest_soon_after_its_last_fault() -> None:
    """Bounded time to the end: not the deadlines end requests, but detection and a new attempt."""
    rested = [run_cluster(setup_of(s, Family.HONEST), Family.HONEST).rested_at for s in range(30)]
    assert max(rested) < 6.0


# ── beside a store ───────────────────────────────────────────────────────────────────────────

WITHOUT_STORE = tuple(family for family in Family if family is not Family.STORE)
STORE = StoreSpec(believed_tokens=40, lost_share=0.1)
"""The worst of beliefs: everything is there. Some of it is not, or not any more."""


def beside_store(
    seed: int,
    family: Family,
    spec: StoreSpec = STORE,
    step_s: float | None = None,
    **parts: Any,
) -> Counter[str]:
    """Each call comes once more, a while later. `step_s`: of all workers, if it is given."""
    setup = setup_of(seed, family)
    if step_s is not None:
        workers = tuple(replace(worker, step_s=step_s) for worker in setup.workers)
        setup = replace(setup, workers=workers)
    again = (
        replace(call, at=call.at + 0.5, request=replace(call.request, id=f"{call.request.id}+"))
        for call in setup.stimuli
        if isinstance(call, Call)
    )
    setup = replace(setup, store=spec, stimuli=(*setup.stimuli, *again))
    return run_cluster(setup, family, Parts(worker=WorkerParts(**parts))).counts


@pytest.mark.parametrize("family", WITHOUT_STORE)
def test_all_laws_hold_beside_a_store_that_loses_blocks(family: Family) -> None:
    """Workers die, stop and join anew while blocks are on their way, and requests move on.

    LMCache 4133: what was there when it was looked up was gone when it was read. 1034: what a
    cancelled read had pinned leaked. Mooncake 2187: a read that can't be had is a miss.
    """
    seen: Counter[str] = Counter()
    for seed in range(15):
        seen += beside_store(seed, family)
    assert min(seen["fetched tokens"], seen["missing tokens"]) > 100


LAYERED = StoreSpec(
    believed_tokens=40, lost_share=0.1, fetch_s=0.03, groups=8, late_share=0.2, late_s=0.3
)


@pytest.mark.parametrize("family", WITHOUT_STORE)
def test_all_laws_hold_where_steps_begin_before_their_kv_is_here(family: Family) -> None:
    """Workers die, stop and lose their gateway in the middle of such steps."""
    seen: Counter[str] = Counter()
    for seed in range(15):
        seen += beside_store(seed, family, LAYERED, step_s=0.03)
    assert seen["Awaited"] > 0


class CountsLost(StoreSide):
    """Says that every block has come."""

    def copy(self, fetch):
        return (True,) * len(super().copy(fetch))


def test_a_block_that_did_not_come_and_is_said_to_be_good_is_found() -> None:
    with pytest.raises(BugError, match="I5"):
        for seed in range(100):
            beside_store(seed, Family.HONEST, store=CountsLost)


# ── same seed, same bytes ────────────────────────────────────────────────────────────────────


def log_text(seed: int, family: Family) -> str:
    cluster = VirtualCluster(setup_of(seed, family))
    cluster.run_to_rest(limit_s=100.0)
    return cluster.log.text()


def test_i7_the_same_seed_gives_the_same_log_in_every_process() -> None:
    code = (
        "from hashlib import sha256\n"
        "from tests.sim.explore.test_cluster_laws import log_text\n"
        "from antiphon.sim.explore.drawn_cluster import Family\n"
        "for family in Family:\n"
        "    text = ''.join(log_text(seed, family) for seed in range(4))\n"
        "    print(family, sha256(text.encode()).hexdigest())"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    )
    assert first == second
    assert first.count("\n") == len(Family)


def test_i7_other_seeds_give_other_logs() -> None:
    assert log_text(0, Family.HONEST) != log_text(1, Family.HONEST)


# ── negative controls ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Control:
    """A faulty part, the family in whose runs it shows, and the seeds that were seen to show it."""

    family: Family
    law: str
    seen_at: tuple[int, ...]
    parts: Parts

    def run(self, seed: int) -> ClusterReport:
        return run_cluster(setup_of(seed, self.family), self.family, self.parts)


CONTROLS = {
    "fencing off": Control(Family.HONEST, "I5", (387,), Parts(worker=WorkerParts(taker=Unfenced))),
    "a release forgotten": Control(
        Family.HONEST, "held pages", (0,), Parts(worker=workers_with(ForgetsRelease))
    ),
    "a taker not checked": Control(
        Family.HONEST, "I23", (619,), Parts(worker=workers_with(TakesAnybody))
    ),
    "attempts ignored": Control(
        Family.IMPATIENT, "I14", (95,), Parts(make_book=book_that_ignores_attempts)
    ),
    "gaps not asked for": Control(
        Family.HOSTILE, "I25", (1,), Parts(router=RouterParts(index=index_that_never_asks))
    ),
    "a resume point lost": Control(
        Family.HONEST, "I14", (0,), Parts(make_book=book_that_loses_resume_points)
    ),
}


def first_find(control: Control, seeds: Iterable[int]) -> BugError | None:
    for seed in seeds:
        try:
            control.run(seed)
        except BugError as problem:
            return problem
    return None


@pytest.mark.parametrize("name", CONTROLS)
def test_a_faulty_part_is_found_within_the_suites_seeds(name: str) -> None:
    control = CONTROLS[name]
    suite = SEEDS[control.family]
    assert set(control.seen_at) <= set(suite)
    problem = first_find(control, (*control.seen_at, *suite))
    assert problem is not None, f"nothing finds {name}"
    with pytest.raises(BugError, match=control.law):
        raise problem


# ── the laws themselves ──────────────────────────────────────────────────────────────────────


def test_the_definition_is_what_a_quiet_cluster_says() -> None:
    setup = setup_of(3, Family.HONEST, faults=FaultPlan(3))
    cluster = VirtualCluster(setup)
    cluster.run_to_rest(limit_s=100.0)
    for story in stories_of(cluster.log).values():
        for sequence in range(story.request.sampling.n):
            assert story.tokens[sequence] == undisturbed(setup, story.request, sequence) != []


def test_a_repeated_token_in_a_log_is_found() -> None:
    cluster = VirtualCluster(setup_of(3, Family.HONEST, faults=FaultPlan(3)))
    cluster.run_to_rest(limit_s=100.0)
    entries = cluster.log.entries
    first = next(i for i, (_, _, what) in enumerate(entries) if type(what).__name__ == "Deliver")
    entries.insert(first + 1, entries[first])
    with pytest.raises(LawBroken, match="I14"):
        stories_of(cluster.log)
