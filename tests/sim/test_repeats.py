"""Steps that are run in a row as one event are what as many single steps are."""

from dataclasses import replace

import pytest

from antiphon.core.draws import Draws
from antiphon.core.faults import FaultPlan
from antiphon.sim import VirtualCluster
from antiphon.sim.cluster_setup import ClusterSetup
from antiphon.sim.explore.cluster_laws import check_drained, check_ended, check_tokens
from antiphon.sim.explore.cluster_run import run_cluster
from antiphon.sim.explore.drawn_cluster import Family, setup_of
from antiphon.sim.explore.stories import stories_of
from antiphon.sim.network import LinkTimes
from antiphon.types import (
    DeliverRun,
    FinishReason,
    Outcome,
    RequestRecord,
    Settle,
)

TICK_S = 0.0003
MOST = 16


def calm(seed: int) -> ClusterSetup:
    """A drawn cluster without faults, with room for all and links of one speed.

    Its router goes by turn: reports are as old as the run that a worker is in.
    """
    setup = setup_of(seed, Family.HONEST, FaultPlan(seed))
    return replace(
        setup,
        workers=tuple(replace(one, pages=one.pages * 40) for one in setup.workers),
        times=LinkTimes(least_s=TICK_S, most_s=TICK_S),
        router=replace(setup.router, policy="round-robin"),
        # Nobody comes at the very moment when a step ends: who is first then is nobody's promise.
        stimuli=tuple(
            replace(one, at=one.at + 1e-7 * number) for number, one in enumerate(setup.stimuli)
        ),
    )


def outcome(setup: ClusterSetup) -> tuple[list[object], int]:
    """How each request ended, with all its stamps, and how many runs were delivered at once."""
    cluster = VirtualCluster(setup)
    cluster.run_to_rest(limit_s=200.0)
    stories = stories_of(cluster.log)
    check_tokens(setup, stories, lossless=True)
    check_ended(stories)
    check_drained(cluster)
    settled = sorted(cluster.log.of_type(Settle), key=lambda one: one.record.request)
    facts = [_facts(one.record) for one in settled]
    runs = sum(1 for _ in cluster.log.of_type(DeliverRun))
    return facts, runs


def _facts(record: RequestRecord) -> object:
    """What a client hears of a request that is cut off may be less: a run is said at its end."""
    stamps = [record.started_at, record.first_token_at, record.ended_at]
    tokens = -1
    if record.outcome is Outcome.FINISHED and FinishReason.STOP not in record.finish_reasons:
        stamps.append(record.last_token_at)
        tokens = record.output_tokens
    times = [None if at is None else round(at, 9) for at in stamps]
    return record.request, record.outcome, tokens, times


@pytest.mark.parametrize("seed", range(24))
def test_runs_of_steps_come_to_what_single_steps_come_to(seed: int) -> None:
    setup = calm(seed)
    single, no_runs = outcome(setup)
    repeated, _ = outcome(replace(setup, most_repeats=MOST))
    assert no_runs == 0
    assert repeated == single


def test_steps_are_run_in_a_row_at_all() -> None:
    runs = sum(outcome(replace(calm(seed), most_repeats=MOST))[1] for seed in range(10))
    assert runs > 20


@pytest.mark.parametrize("seed", range(16))
def test_laws_hold_under_faults_whatever_is_run_in_a_row(seed: int) -> None:
    setup = replace(setup_of(seed, Family.GATEWAY), most_repeats=1 + Draws(seed).below(12, "most"))
    run_cluster(setup, Family.GATEWAY)
