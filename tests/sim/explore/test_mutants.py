"""The harness finds what it is for: each faulty part within 200 seeds, and makes it small.

That these seeds are the first is for `benchmarks/mutants.py` to say.
"""

import pytest

from antiphon.sim.explore.cluster_run import broken_by
from antiphon.sim.explore.drawn_cluster import setup_of
from antiphon.sim.explore.shrink import shrink
from antiphon.testing.mutants import MUTANTS

SMALL = {"fencing off": 1, "a release lost": 0, "a token twice": 1, "a cancel forgotten": 0}
"""Faults that are left of the run that found it."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_faulty_part_is_found_within_200_seeds(name: str) -> None:
    mutant = MUTANTS[name]
    assert mutant.seed < 200
    setup = setup_of(mutant.seed, mutant.family)
    assert broken_by(setup, mutant.family) is None
    broken = broken_by(setup, mutant.family, mutant.parts)
    assert broken is not None
    assert broken.law == mutant.law


@pytest.mark.parametrize("name", SMALL)
def test_what_is_left_of_it_is_small(name: str) -> None:
    mutant = MUTANTS[name]
    small = shrink(setup_of(mutant.seed, mutant.family), mutant.family, mutant.parts)
    assert small.broken.law == mutant.law
    assert small.is_minimal
    assert len(small.setup.faults.faults) <= SMALL[name]
    assert len(small.setup.stimuli) <= 2
    assert len(small.setup.workers) <= 3
    assert broken_by(small.setup, mutant.family) is None
