"""Where the beginning of a prompt comes from, if a certain worker computes the rest."""

from collections.abc import Callable
from typing import NamedTuple

from antiphon.types import Seconds, Tier, WorkerId

from .fetch_pace import FetchPace
from .prefix_beliefs import StoredTokens

_MOST_RUNS = 16
"""Of a prefix that changes tiers more often, the first part is looked at."""


class PrefixPlan(NamedTuple):
    """`cached` tokens are not computed: they are in the worker's own memory, or the first `fetch`
    tokens come from the store (0: not worth it). `compute_s` is at the model's pace, and so is
    `occupied_s`: for so long of it the worker begins no other prompt."""

    cached: int
    uncached: int
    compute_s: Seconds
    occupied_s: Seconds
    fetch: int = 0
    fetch_s: Seconds = 0.0
    fetch_tier: Tier | None = None
    """Where most of `fetch_s` is spent."""
    sharing: int = 0
    """Other open requests that begin alike."""


def cheapest(
    own: PrefixPlan,
    store: tuple[StoredTokens, ...],
    fetches: FetchPace,
    *,
    at: WorkerId,
    kv_bytes_per_token: int,
    pace: float,
    computed: Callable[[int], PrefixPlan],
) -> PrefixPlan:
    """Compute all that the worker lacks, or fetch a part of it first: whichever is sooner.

    Mooncake (Qin et al., FAST 2025), algorithm 1: the longest match elsewhere is fetched if that
    beats computing it. Here each tier has its own time, so that a prefix may be fetched as far as
    a fast tier has it. `at`: which store that is. `computed` makes the plan with so many tokens
    cached.
    """
    best, best_s = own, pace * own.compute_s
    times: dict[Tier, Seconds] = {}
    sizes: dict[Tier, int] = {}
    reach = 0
    for tier, tokens in store[:_MOST_RUNS]:
        lacking = min(tokens, reach + tokens - own.cached)
        reach += tokens
        if lacking <= 0:
            continue
        sizes[tier] = sizes.get(tier, 0) + lacking * kv_bytes_per_token
        times[tier] = fetches.seconds(sizes[tier], tier, at)
        fetch_s, plan = sum(times.values()), computed(reach)
        if fetch_s + pace * plan.compute_s < best_s:
            best_s = fetch_s + pace * plan.compute_s
            slowest = max(times, key=lambda tier: (times[tier], tier))
            best = plan._replace(fetch=reach, fetch_s=fetch_s, fetch_tier=slowest)
    return best
