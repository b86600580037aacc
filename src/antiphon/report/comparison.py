"""Numbers side by side, each against the first."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isclose, isnan
from pathlib import Path

from antiphon.core.goodput import Estimate, difference
from antiphon.errors import UsageError
from antiphon.types import LoadRun

from . import wording

LEGEND = (
    "Ratios are to the first run. A difference is within noise unless the 95 % interval of the "
    "difference excludes 0; of twenty rows of equal servers one is expected to look different all "
    "the same. Where a single run cannot say how noisy a number is, only the ratio is given."
)
ALIKE = (
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
"""Fields of `LoadRun` that must be equal for a difference to be the servers'."""
_SAME_RATE = 0.01
"""Rates that differ by no more, relatively, are one rate."""


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
    TOO_FEW = "too few calls to tell"
    """Not better or worse for certain, and nobody knows how large the difference may be."""
    OTHER_RATE = "offered rates differ"
    """The number follows from how much was asked of the server."""
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
        """1.24× better · 1.01× within noise · 2.1×; empty for the first run's own.

        Of numbers that can't be held against each other there is no ratio, only why.
        """
        if self.against is Against.FIRST:
            return ""
        if self.against is Against.OTHER_RATE:
            return str(self.against)
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


@dataclass(frozen=True, slots=True)
class Number:
    """One run's number for a row, before it is held against the first's.

    `noise_known`: its estimate's bounds say how noisy it is; `too_few`: there were too few calls
    for one of them. `offered_per_s`: the rate that the number follows from, if it does from one.
    """

    name: str
    better: Better
    text: Callable[[float], str]
    estimate: Estimate | None
    noise_known: bool = True
    too_few: bool = False
    offered_per_s: float | None = None


def row_of(numbers: Sequence[Number]) -> Row:
    """All runs' numbers of one kind, the first run's first."""
    first = numbers[0]
    return Row(
        name=first.name,
        better=first.better,
        cells=tuple(
            Cell(
                estimate=one.estimate,
                text=wording.NOTHING if one.estimate is None else one.text(one.estimate.value),
                ratio=_ratio(one, first),
                against=_against(one, first) if place else Against.FIRST,
            )
            for place, one in enumerate(numbers)
        ),
    )


def _against(one: Number, first: Number) -> Against:
    if one.estimate is None or first.estimate is None:
        return Against.UNKNOWN
    if _rates_differ(one, first):
        return Against.OTHER_RATE
    change = difference(one.estimate, first.estimate)
    if not one.noise_known or isnan(change.value):
        return Against.UNKNOWN
    if not change.excludes(0.0):
        return Against.TOO_FEW if one.too_few or first.too_few else Against.WITHIN_NOISE
    return Against.BETTER if (change.value > 0) == (one.better is Better.HIGHER) else Against.WORSE


def _rates_differ(one: Number, first: Number) -> bool:
    if one.offered_per_s is None or first.offered_per_s is None:
        return False
    return not isclose(one.offered_per_s, first.offered_per_s, rel_tol=_SAME_RATE)


def _ratio(one: Number, first: Number) -> float | None:
    if one.estimate is None or first.estimate is None or first.estimate.value == 0:
        return None
    return None if _rates_differ(one, first) else one.estimate.value / first.estimate.value


def names_of(runs: Sequence[LoadRun], folders: Sequence[Path]) -> tuple[str, ...]:
    """Titles where they tell runs apart, else with folders, else with places.

    Raises `UsageError` for fewer than two runs: there is nothing to compare.
    """
    if len(runs) < 2:
        raise UsageError(f"compare: needs at least two runs, not {len(runs)}")
    titles = [run.title or folder.name for run, folder in zip(runs, folders, strict=True)]
    with_folders = [
        f"{title} ({folder.name})" for title, folder in zip(titles, folders, strict=True)
    ]
    for names in (titles, with_folders):
        if max(Counter(names).values()) == 1:
            return tuple(names)
    return tuple(f"{place}: {name}" for place, name in enumerate(with_folders, 1))


def unlike(runs: Sequence[LoadRun], alike: Sequence[str] = ALIKE) -> list[str]:
    """A warning that names what runs do not have in common with the first, if anything."""
    names = [
        name
        for name in alike
        if any(getattr(run, name) != getattr(runs[0], name) for run in runs[1:])
    ]
    if not names:
        return []
    return [
        f"The runs differ in more than the server: {', '.join(names)}. Differences between their "
        "numbers may come from that."
    ]


def headline_of(what: str, names: Sequence[str], row: Row) -> str:
    """What became of one number of each other run, against the first's."""
    others = [f"{name} {cell.against_first}" for name, cell in zip(names, row.cells, strict=True)]
    return f"{what}, against {names[0]}: {', '.join(others[1:])}."
