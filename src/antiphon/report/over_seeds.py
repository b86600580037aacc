"""Several runs of one thing that differ by their seed: what they have in common, and how far apart
they lie."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import RenderableType

from antiphon.core.goodput import Distribution, Goodput

from . import wording
from .run_summary import RunSummary
from .table import empty_table

Shown = Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One number of all runs. `values` in order of the runs, without those that have none."""

    name: str
    mean: float
    low: float
    high: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverSeeds:
    """The runs of one scenario, by `seeds`."""

    scenario: str
    seeds: tuple[int, ...]
    spreads: tuple[Spread, ...]


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    of: Callable[[RunSummary], float | None]
    shown: Shown


def _percentile(latency: str, at: str) -> Callable[[RunSummary], float | None]:
    def of(summary: RunSummary) -> float | None:
        found: Distribution | None = getattr(summary, latency)
        return None if found is None else getattr(found, at)

    return of


_METRICS = (
    _Metric(
        "within targets",
        lambda one: None if one.overall.both is None else one.overall.both.value,
        wording.share,
    ),
    _Metric("goodput per device", lambda one: one.goodput_per_s, wording.rate),
    _Metric("calls answered", lambda one: one.ok_per_s, wording.rate),
    _Metric("output tokens", lambda one: one.output_tokens_per_s, wording.rate),
    _Metric("calls failed", lambda one: float(one.calls - one.ok), wording.number),
    _Metric(
        "lost to faults",
        lambda one: None if one.faults is None else one.faults.lost_share,
        wording.share,
    ),
    _Metric(
        "tokens computed again",
        lambda one: None if one.faults is None else float(one.faults.wasted_tokens),
        wording.number,
    ),
    _Metric("prompts cached", lambda one: one.cached_share, wording.share),
    *(
        _Metric(f"{name.upper()} {at}", _percentile(name, at), wording.seconds)
        for name in ("ttft", "tpot", "e2e")
        for at in ("p50", "p99")
    ),
)
_GOODPUT = (("goodput", wording.rate), ("goodput per device", wording.rate))
_SHOWN: dict[str, Shown] = {one.name: one.shown for one in _METRICS} | dict(_GOODPUT)


def over_seeds(scenario: str, seeds: Sequence[int], summaries: Sequence[RunSummary]) -> OverSeeds:
    """What is alike in runs, and how far they lie apart."""
    spreads = [_spread(metric.name, [metric.of(one) for one in summaries]) for metric in _METRICS]
    return _over(scenario, seeds, spreads)


def goodput_over_seeds(scenario: str, seeds: Sequence[int], found: Sequence[Goodput]) -> OverSeeds:
    """The same for searches."""
    rates = _spread("goodput", [one.rate_per_s for one in found])
    return _over(
        scenario, seeds, [rates, _spread("goodput per device", [one.per_device for one in found])]
    )


def seeds_table(scenarios: Sequence[OverSeeds]) -> RenderableType:
    """A column for each scenario: means, with the least and the largest behind them."""
    heads = [f"{one.scenario}, {wording.plural(len(one.seeds), 'seed')}" for one in scenarios]
    table = empty_table("mean (least–most)", right=list(map(wording.plain, heads)))
    names = [name for name in _SHOWN if any(name == s.name for o in scenarios for s in o.spreads)]
    for name in names:
        table.add_row(name, *(_cell(one, name) for one in scenarios))
    return table


def _cell(scenario: OverSeeds, name: str) -> str:
    found = next((one for one in scenario.spreads if one.name == name), None)
    if found is None:
        return wording.NOTHING
    shown = _SHOWN[name]
    if found.low == found.high:
        return shown(found.mean)
    return f"{shown(found.mean)} ({shown(found.low)}–{shown(found.high)})"


def _over(scenario: str, seeds: Sequence[int], spreads: Sequence[Spread | None]) -> OverSeeds:
    known = tuple(one for one in spreads if one is not None)
    return OverSeeds(scenario=scenario, seeds=tuple(seeds), spreads=known)


def _spread(name: str, values: Sequence[float | None]) -> Spread | None:
    known = tuple(value for value in values if value is not None)
    if not known:
        return None
    return Spread(name=name, mean=fmean(known), low=min(known), high=max(known), values=known)
