"""What `antiphon bench` was told of a search, checked."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from antiphon.core.goodput import ScaleRules, SearchRules
from antiphon.core.number_text import number_text
from antiphon.errors import UsageError

if TYPE_CHECKING:
    from antiphon.runs import LoadPlan

_BOUNDS_PER_S = (0.05, 1000.0)
_START_PER_S = 1.0
_TOLERANCE = 0.05
_SCALES = "0.25,0.5,0.75,1,1.25,1.5,2,3,4"
_MOST_SCALES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWords:
    """A search as it was written on the command line; None: not."""

    find_goodput: bool
    min_rate: float | None
    max_rate: float | None
    tolerance: float | None
    find_slo_scale: bool
    scales: str | None


def aim_of(
    words: SearchWords, plan: "LoadPlan", start: float | None
) -> SearchRules | ScaleRules | None:
    """The rules of the search, which begins at the rate `start`; None: there is none.

    Raises `UsageError`, also for an option that would have no effect.
    """
    _check_effect(words)
    if plan.most_calls is not None and (words.find_goodput or words.find_slo_scale):
        raise UsageError("--requests: a search says itself how many requests it needs")
    if words.find_goodput:
        lowest, highest = _BOUNDS_PER_S
        bounds = (_or(words.min_rate, lowest), _or(words.max_rate, highest))
        return _search_rules(plan, start, bounds, _or(words.tolerance, _TOLERANCE))
    if words.find_slo_scale:
        return _scale_rules(plan, _SCALES if words.scales is None else words.scales)
    return None


def _check_effect(words: SearchWords) -> None:
    if words.find_goodput and words.find_slo_scale:
        raise UsageError("--find-goodput and --find-slo-scale: give one of them")
    of_goodput = {
        "--min-rate": words.min_rate,
        "--max-rate": words.max_rate,
        "--tolerance": words.tolerance,
    }
    for name, value in of_goodput.items():
        if value is not None and not words.find_goodput:
            raise UsageError(f"{name}: has no effect without --find-goodput")
    if words.scales is not None and not words.find_slo_scale:
        raise UsageError("--scales: has no effect without --find-slo-scale")


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _search_rules(
    plan: "LoadPlan", start: float | None, bounds: tuple[float, float], tolerance: float
) -> SearchRules:
    """How goodput is searched for: from `start`, within `bounds`. Raises `UsageError`."""
    lowest, highest = bounds
    for name, value in (("--min-rate", lowest), ("--max-rate", highest)):
        if not 0 < value < math.inf:
            raise UsageError(f"{name} {number_text(value)}: must be above 0 requests a second")
    if lowest > highest:
        raise UsageError(
            f"--min-rate {number_text(lowest)}: is above --max-rate {number_text(highest)}"
        )
    if start is not None and not lowest <= start <= highest:
        raise UsageError(
            f"--rate {number_text(start)}: the search begins there, so it must lie between "
            f"--min-rate {number_text(lowest)} and --max-rate {number_text(highest)}"
        )
    return SearchRules(
        tolerance=tolerance,
        start_per_s=min(max(start or _START_PER_S, lowest), highest),
        lowest_per_s=lowest,
        highest_per_s=highest,
        run_s=plan.duration_s - plan.warmup_s,
        longest_run_s=max(plan.duration_s, SearchRules().longest_run_s),
        devices=plan.devices,
    )


def _scale_rules(plan: "LoadPlan", scales: str) -> ScaleRules:
    """How the tightest targets are searched for, at the plan's rate. Raises `UsageError`."""
    if plan.rate_per_s is None:
        raise UsageError("--find-slo-scale: is at one rate: give --rate")
    return ScaleRules(
        rate_per_s=plan.rate_per_s,
        run_s=plan.duration_s - plan.warmup_s,
        scales=_scales(scales),
    )


def _scales(text: str) -> tuple[float, ...]:
    found = set[float]()
    for part in text.split(","):
        try:
            scale = float(part)
        except ValueError:
            scale = math.nan
        if not 0 < scale < math.inf:
            raise UsageError(f'--scales "{text}": must be factors above 0, such as 0.5,1,2')
        found.add(scale)
    if len(found) > _MOST_SCALES:
        raise UsageError(f"--scales: has more than {_MOST_SCALES} factors")
    return tuple(sorted(found))
