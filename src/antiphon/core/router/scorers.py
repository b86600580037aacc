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
_SIMILAR_HOMES = 0.05
"""The same for a prompt that nobody has, since whoever computes it becomes the home of what begins
like it: homes should be spread."""


class Scorer(Protocol):
    """Picks one option. `by_prediction`: decode workers compute prompts where that is sooner."""

    by_prediction: bool

    def best(self, options: Sequence[Option]) -> Option:
        """One of `options`, of which there is at least one. May count its decisions."""
        ...


class MostHeadroom:
    """Most headroom to the targets, then least work, then turn; of a prompt that is new turn alone.

    Whatever one option takes longer by itself than another is work that makes others wait, as
    likely as a worker has a queue: it counts once more, by the mean share of waiting in the time to
    the first token. So a prefix is computed again where that is sooner by more than it costs
    others; a hot one spreads, since its effort is shared by all who wait for it.
    """

    by_prediction = True

    def best(self, options: Sequence[Option]) -> Option:
        """Does not mutate."""
        values = self._values(options)
        homeless = _is_new(options)
        enough = max(values) - (_SIMILAR_HOMES if homeless else _SIMILAR)
        good = [option for option, value in zip(options, values, strict=True) if value >= enough]
        if homeless:
            return min(good, key=lambda option: option.turn)
        return min(good, key=lambda option: (option.work_s, option.turn))

    def _values(self, options: Sequence[Option]) -> list[float]:
        efforts = [option.effort for option in options]
        least = min(efforts)
        share = self._waiting(options) if max(efforts) > least else 0.0
        if not share:
            return [option.headroom for option in options]
        return [option.headroom - share * (option.effort - least) for option in options]

    def _waiting(self, options: Sequence[Option]) -> float:
        """What share of the time to the first token is waiting for others, on average."""
        shares = [option.queued_s / option.ttft_s if option.ttft_s else 0.0 for option in options]
        return sum(shares) / len(shares)


def _is_new(options: Sequence[Option]) -> bool:
    """Is a prompt computed that nobody has anything of?"""
    return all(option.effort > 0 and not option.matched for option in options)


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


class PrefixGated:
    """Whoever has most of the prompt, unless loads differ much; SGLang's `cache_aware` policy.

    Loads differ much if the longest and the shortest queue differ by more than 64 requests and by
    a factor of more than 1.5: then, and where nobody has more than 0.3 of the prompt, the shortest
    queue. Its defaults (sgl-model-gateway, 2025).
    """

    by_prediction = False
    _most_apart, _most_times, _least_matched = 64, 1.5, 0.3

    def best(self, options: Sequence[Option]) -> Option:
        """Does not mutate."""
        loads = [option.requests for option in options]
        longest, shortest = max(loads), min(loads)
        uneven = longest - shortest > self._most_apart and longest > self._most_times * shortest
        if uneven or max(option.matched for option in options) <= self._least_matched:
            return min(options, key=lambda option: option.turn)
        return min(options, key=lambda option: (-option.matched, option.turn))


class OverlapCost:
    """Fewest tokens to compute before the first token, plus tokens in the KV of what decodes.

    Dynamo's KV router up to version 1.1: `cost = overlap_weight · prefill blocks + decode blocks`,
    with its default weight of 1, lowest cost wins (temperature 0). Counted in tokens: the size of
    a block scales both terms alike.
    """

    by_prediction = False
    _weight = 1.0

    def best(self, options: Sequence[Option]) -> Option:
        """Does not mutate."""
        return min(options, key=lambda option: (self._cost(option), option.turn))

    def _cost(self, option: Option) -> float:
        return self._weight * option.prefill_tokens + option.context_tokens


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
        case "prefix-gated":
            return PrefixGated()
        case "overlap-cost":
            return OverlapCost()
        case _:
            raise BugError(f"there is no scorer named {policy!r}")
