"""Which seed finds each faulty part, and how small the run becomes.

    .venv/bin/python benchmarks/mutants.py                  all of them; a few minutes
    .venv/bin/python benchmarks/mutants.py "fencing off"    one of them

Every seed is run in every family, as `antiphon sim explore` does, until a law is broken: it must be
within 200 seeds. Then the run is shrunk.
"""

import argparse
import time

from antiphon.sim.explore.drawn_cluster import Family, setup_of
from antiphon.sim.explore.scorecard import SeedRun
from antiphon.sim.explore.search import search
from antiphon.sim.explore.shrink import shrink
from antiphon.testing.mutants import MUTANTS, Mutant

SEEDS = 200


def first_find(mutant: Mutant) -> SeedRun | None:
    """The first run that breaks a law; None: none does."""
    runs = search(range(SEEDS), tuple(Family), parts=mutant.parts)
    return next((run for run in runs if run.broken is not None), None)


def row(name: str, mutant: Mutant) -> bool:
    """Print what becomes of one; whether it was found where it is said to be."""
    began = time.monotonic()
    found = first_find(mutant)
    if found is None or found.broken is None:
        print(f"{name:<20} not within {SEEDS} seeds")
        return False
    searched_s = time.monotonic() - began
    setup = setup_of(found.seed, found.family)
    small = shrink(setup, found.family, mutant.parts)
    print(
        f"{name:<20} seed {found.seed:>3} {found.family.value:<9} {found.broken.law:<4} "
        f"{searched_s:5.1f} s | {len(setup.faults.faults)} faults, {len(setup.stimuli)} stimuli, "
        f"{len(setup.workers)} workers -> {small.size} in {small.runs} runs, "
        f"{time.monotonic() - began - searched_s:.1f} s"
    )
    return (found.seed, found.family) == (mutant.seed, mutant.family)


def main() -> int:
    """Exit code 1: one was not found, or elsewhere than `testing/mutants.py` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MUTANTS))
    names = parser.parse_args().names or list(MUTANTS)
    if unknown := [name for name in names if name not in MUTANTS]:
        parser.error(f"{unknown[0]!r} is none of {list(MUTANTS)}")
    as_said = [row(name, MUTANTS[name]) for name in names]
    return 0 if all(as_said) else 1


if __name__ == "__main__":
    raise SystemExit(main())
