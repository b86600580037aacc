"""Which of several options is best: the variants of `router.policy`.

All see the same options, after the same filter, so that they differ in nothing but the choice.
"""

from collections.abc import Sequence
from typing import Protocol

from antiphon.core.draws import Draws
from antiphon.errors import BugError

from .option import Option

_SIMILAR = 0.02
"""Options whose headroom differs by less are equally good: a prediction is no closer than that,
and whoever takes the better one always lets noise send every request to the same worker."""


class Scorer(Protocol):
    """Picks one option. `by_prediction`: decode workers compute prompts where that is sooner."""

    by_prediction: bool

    def best(self, options: Sequence[Option]) -> Option:
        """One of `options`, of which there is at least one. May count its decisions."""
        ...


class MostHeadroom:
    """Most headroom to the targets, then least work, then turn."""

    by_prediction = True

    def best(self, options: Sequence[Option]) -> Option:
        """Does not mutate."""
        enough = max(option.headroom for option in options) - _SIMILAR
        good = [option for option in options if option.headroom >= enough]
        return min(good, key=lambda option: (option.work_s, option.turn))


class LeastLoaded:
    """Fewest requests, then turn."""

    by_prediction = False

    def best(self, options: Sequence[Option]) -> Option:
        """Does not mutate."""
        return min(options, key=lambda option: option.turn)


class RoundRobin:
    """The one whose last turn is longest ago."""

    by_prediction = False

    def best(self, options: Sequence[Option]) -> Option:
        """Does not mutate."""
        return min(options, key=lambda option: (option.chosen, option.workers))


class Random:
    """Any, with equal chance: draw number k is a function of (seed, k)."""

    by_prediction = False

    def __init__(self, seed: int) -> None:
        self._draws = Draws(seed)
        self._drawn = 0

    def best(self, options: Sequence[Option]) -> Option:
        """Mutates: counts draws."""
        number = self._drawn
        self._drawn += 1
        ordered = sorted(options, key=lambda option: option.workers)
        return self._draws.choice(ordered, "route", number)


def scorer_of(policy: str, seed: int) -> Scorer:
    """The scorer that `router.policy` names."""
    match policy:
        case "slo":
            return MostHeadroom()
        case "random":
            return Random(seed)
        case "round-robin":
            return RoundRobin()
        case "least-loaded":
            return LeastLoaded()
        case _:
            raise BugError(f"there is no scorer named {policy!r}")
