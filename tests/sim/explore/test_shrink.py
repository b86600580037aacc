"""A run that breaks a law, made small: the same law, less of everything, within its bounds."""

from dataclasses import replace

import pytest

from antiphon.core.faults import FaultPlan
from antiphon.errors import BugError
from antiphon.sim import ClusterSetup, Hostility, VirtualCluster
from antiphon.sim.explore.cluster_run import Parts, broken_by, misfortunes_of
from antiphon.sim.explore.drawn_cluster import Family, setup_of
from antiphon.sim.explore.shrink import shrink
from antiphon.testing.faulty_cluster import (
    book_that_ignores_attempts,
    book_that_loses_resume_points,
)

RESUMES = Parts(make_book=book_that_loses_resume_points)
ATTEMPTS = Parts(make_book=book_that_ignores_attempts)


def test_a_failure_is_made_small() -> None:
    """Of a run with many calls and faults only those are left without which it would not fail."""
    setup, family = setup_of(95, Family.IMPATIENT), Family.IMPATIENT
    assert broken_by(setup, family) is None
    before = broken_by(setup, family, ATTEMPTS)
    assert before is not None
    small = shrink(setup, family, ATTEMPTS)
    after = broken_by(small.setup, family, ATTEMPTS)
    assert after == small.broken
    assert small.broken.law == before.law
    assert broken_by(small.setup, family) is None
    assert small.is_minimal
    assert len(small.setup.stimuli) + len(small.setup.faults.faults) <= 5


def test_nothing_can_be_left_out_of_what_is_left() -> None:
    setup, family = setup_of(0, Family.HONEST), Family.HONEST
    small = shrink(setup, family, RESUMES)
    left = small.setup
    fewer = [
        replace(left, stimuli=left.stimuli[:at] + left.stimuli[at + 1 :])
        for at in range(len(left.stimuli))
    ]
    fewer += [
        replace(left, faults=FaultPlan(0, left.faults.faults[:at] + left.faults.faults[at + 1 :]))
        for at in range(len(left.faults.faults))
    ]
    assert fewer
    for one in fewer:
        broken = broken_by(one, family, RESUMES)
        assert broken is None or broken.law != small.broken.law


def test_shrinking_is_the_same_every_time_and_says_how_far_it_is() -> None:
    setup, said = setup_of(0, Family.HONEST), []
    first = shrink(setup, Family.HONEST, RESUMES, told=said.append)
    assert repr(shrink(setup, Family.HONEST, RESUMES)) == repr(first)
    assert said
    assert all(line.startswith(first.broken.law) for line in said)


def test_shrinking_ends_when_its_runs_are_used_up() -> None:
    small = shrink(setup_of(0, Family.HONEST), Family.HONEST, RESUMES, most_runs=5)
    assert small.runs == 5
    assert not small.is_minimal
    assert broken_by(small.setup, Family.HONEST, RESUMES) == small.broken


def test_a_run_that_breaks_no_law_is_not_shrunk() -> None:
    with pytest.raises(BugError, match="breaks no law"):
        shrink(setup_of(0, Family.HONEST), Family.HONEST)


def test_what_hostile_links_do_by_chance_can_be_planned() -> None:
    """The same run to the byte, whoever chose what goes wrong: so chances can be left out."""
    happened = 0
    for seed in range(12):
        setup = setup_of(seed, Family.HOSTILE)
        misfortunes = tuple(misfortunes_of(setup))
        happened += len(misfortunes)
        faults = replace(setup.faults, faults=(*setup.faults.faults, *misfortunes))
        planned = replace(setup, hostility=Hostility(), faults=faults)
        triggers = [fault.trigger for fault in misfortunes]
        if len(set(triggers)) == len(triggers):  # no message met with two at once
            assert log_of(planned) == log_of(setup)
    assert happened > 100


def log_of(setup: ClusterSetup) -> str:
    cluster = VirtualCluster(setup)
    cluster.run_to_rest(limit_s=100.0)
    return cluster.log.text()
