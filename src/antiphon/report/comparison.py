"""Runs side by side, each against the first."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isinf

from antiphon.core.goodput import (
    Estimate,
    after_warmup,
    difference,
    percentile,
    percentile_estimate,
    share,
)
from antiphon.errors import UsageError
from antiphon.types import LoadRun, Seconds

from . import wording
from .run_folder import SavedRun
from .run_summary import Latencies

LEGEND = (
    "Ratios are to the first run. A difference is within noise unless the 95 % interval of the "
    "difference excludes 0; of twenty rows of equal servers one is expected to look different all "
    "the same. Where a single run cannot say how noisy a number is, only the ratio is given."
)
_ALIKE = (
    "model",
    "workload",
    "arrivals",
    "rate_per_s",
    "slos",
    "duration_s",
    "warmup_s",
    "devices",
    "seed",
)
"""What must be equal for a difference to be the servers'."""
_GOODPUT = "goodput/s per device"
_PARTS = (0.5, 0.9, 0.99)


class Better(StrEnum):
    """Which way a number should go."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = ""


class Against(StrEnum):
    """A run's number against the first run's."""

    FIRST = ""
    BETTER = "better"
    WORSE = "worse"
    WITHIN_NOISE = "within noise"
    UNKNOWN = "noise unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run's number: as text, as its ratio to the first run's, and whether that means anything.

    `estimate`: None where there is no number; its bounds equal its value where noise is unknown.
    """

    estimate: Estimate | None
    text: str
    ratio: float | None
    against: Against

    @property
    def against_first(self) -> str:
        """1.24× better · 1.01× within noise · 2.1×; empty for the first run's own."""
        if self.against is Against.FIRST:
            return ""
        times = wording.NOTHING if self.ratio is None else wording.ratio(self.ratio)
        return times if self.against is Against.UNKNOWN else f"{times} {self.against}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The same number of all runs."""

    name: str
    better: Better
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`names` of the runs, which are all different; each row has a cell for each of them."""

    headline: str
    names: tuple[str, ...]
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]
    legend: str = LEGEND


def compare(runs: Sequence[SavedRun]) -> Comparison:
    """The runs, each against the first. Raises `UsageError` for fewer than two."""
    if len(runs) < 2:
        raise UsageError(f"compare: needs at least two runs, not {len(runs)}")
    names = _names(runs)
    columns = [_numbers(saved) for saved in runs]
    rows = [_row(numbers) for numbers in zip(*columns, strict=True)]
    return Comparison(
        headline=_headline(names, next(row for row in rows if row.name == _GOODPUT)),
        names=names,
        rows=tuple(row for row in rows if any(cell.estimate is not None for cell in row.cells)),
        warnings=(*_unlike(runs), *_doubts(runs, names)),
    )


def differing(first: LoadRun, second: LoadRun) -> tuple[str, ...]:
    """What two runs do not have in common, though they would have to for a fair comparison."""
    return tuple(name for name in _ALIKE if getattr(first, name) != getattr(second, name))


@dataclass(frozen=True, slots=True)
class _Number:
    """One run's number for a row. `noise_known`: its estimate's bounds say how noisy it is."""

    name: str
    better: Better
    text: Callable[[float], str]
    estimate: Estimate | None
    noise_known: bool = True


def _numbers(saved: SavedRun) -> list[_Number]:
    """All rows of one run, in the same order for every run."""
    summary = saved.summary
    times = Latencies.of(after_warmup(saved.records, saved.run.warmup_s))
    overall, sessions = summary.overall, summary.sessions
    whole = sessions.share if sessions.most_calls > 1 else None
    failed = share(summary.calls - summary.ok, summary.calls)
    return [
        _Number("met both targets", Better.HIGHER, wording.share, overall.both),
        _Number("met TTFT", Better.HIGHER, wording.share, overall.ttft),
        _Number("met TPOT", Better.HIGHER, wording.share, overall.tpot),
        _Number("sessions met all", Better.HIGHER, wording.share, whole),
        _Number(_GOODPUT, Better.HIGHER, wording.number, goodput_of(saved)),
        _Number("failed", Better.LOWER, wording.share, failed),
        *_latency_numbers("TTFT", times.ttft_s),
        *_latency_numbers("TPOT", times.tpot_s),
        *_gap_numbers(times.itl_s, summary.served),
        *_latency_numbers("end to end", times.e2e_s),
        _once("requests/s", Better.HIGHER, summary.ok_per_s),
        _once("output tokens/s", Better.HIGHER, summary.output_tokens_per_s),
        _once("prompt tokens/s", Better.HIGHER, summary.prompt_tokens_per_s),
        _once("share of prompts cached", Better.NEITHER, summary.cached_share, wording.share),
    ]


def goodput_of(saved: SavedRun) -> Estimate:
    """Calls within targets, per second and device; as uncertain as the share of them."""
    both = saved.summary.overall.both
    scale = saved.summary.offered_per_s / saved.run.devices
    return Estimate(scale * both.value, scale * both.low, scale * both.high)


def _once(
    name: str, better: Better, value: float, text: Callable[[float], str] = wording.number
) -> _Number:
    """A number of which a run has only one."""
    return _Number(name, better, text, Estimate(value, value, value), noise_known=False)


def _latency_numbers(name: str, values: Sequence[Seconds]) -> list[_Number]:
    return [
        _Number(
            f"{name} p{100 * part:.0f}",
            Better.LOWER,
            wording.seconds,
            percentile_estimate(values, part) if values else None,
        )
        for part in _PARTS
    ]


def _gap_numbers(gaps_s: Sequence[Seconds], calls: int) -> list[_Number]:
    """Percentiles of the gaps between pieces, with bounds as if each call had only one.

    A call's gaps are far from independent of each other. The other extreme, that it says no more
    than one of them would, errs on the side of noise.
    """
    return [
        _Number(
            f"ITL p{100 * part:.0f}",
            Better.LOWER,
            wording.seconds,
            _of_calls(gaps_s, part, calls) if gaps_s else None,
        )
        for part in _PARTS
    ]


def _of_calls(gaps_s: Sequence[Seconds], part: float, calls: int) -> Estimate:
    places = percentile_estimate([place / max(1, calls - 1) for place in range(calls)], part)
    return Estimate(
        percentile(gaps_s, part),
        percentile(gaps_s, places.low),
        inf if isinf(places.high) else percentile(gaps_s, places.high),
    )


def _row(numbers: Sequence[_Number]) -> Row:
    first = numbers[0]
    return Row(
        name=first.name,
        better=first.better,
        cells=tuple(
            Cell(
                estimate=one.estimate,
                text=wording.NOTHING if one.estimate is None else one.text(one.estimate.value),
                ratio=_ratio(one.estimate, first.estimate),
                against=_against(one, first) if place else Against.FIRST,
            )
            for place, one in enumerate(numbers)
        ),
    )


def _against(one: _Number, first: _Number) -> Against:
    if one.estimate is None or first.estimate is None or not one.noise_known:
        return Against.UNKNOWN
    change = difference(one.estimate, first.estimate)
    if not change.excludes(0.0):
        return Against.WITHIN_NOISE
    return Against.BETTER if (change.value > 0) == (one.better is Better.HIGHER) else Against.WORSE


def _ratio(estimate: Estimate | None, first: Estimate | None) -> float | None:
    if estimate is None or first is None or first.value == 0:
        return None
    return estimate.value / first.value


def _headline(names: Sequence[str], goodput: Row) -> str:
    """What became of each other run's goodput, against the first's."""
    others = [
        f"{name} {cell.against_first}" for name, cell in zip(names, goodput.cells, strict=True)
    ][1:]
    return f"Calls within targets, per second and device, against {names[0]}: {', '.join(others)}."


def _names(runs: Sequence[SavedRun]) -> tuple[str, ...]:
    """Titles where they tell runs apart, else with folders, else with places."""
    titles = [saved.run.title or saved.folder.name for saved in runs]
    with_folders = [
        f"{title} ({saved.folder.name})" for title, saved in zip(titles, runs, strict=True)
    ]
    numbered = [f"{place}: {name}" for place, name in enumerate(with_folders, 1)]
    for names in (titles, with_folders):
        if max(Counter(names).values()) == 1:
            return tuple(names)
    return tuple(numbered)


def _unlike(runs: Sequence[SavedRun]) -> list[str]:
    names = [name for saved in runs[1:] for name in differing(runs[0].run, saved.run)]
    unlike = [name for name in _ALIKE if name in names]
    if not unlike:
        return []
    return [
        f"The runs differ in more than the server: {', '.join(unlike)}. Differences between their "
        "numbers may come from that."
    ]


def _doubts(runs: Sequence[SavedRun], names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name, saved in zip(names, runs, strict=True):
        if not saved.whole:
            found.append(f"{name}: was interrupted.")
        found += [f"{name}: {doubt}" for doubt in saved.run.notes]
    return found
