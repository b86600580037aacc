"""Searches side by side, each against the first."""

from collections.abc import Sequence
from math import isinf
from pathlib import Path

from antiphon.core.goodput import Estimate
from antiphon.core.number_text import number_text
from antiphon.errors import UsageError

from . import wording
from .comparison import ALIKE, Better, Comparison, Number, headline_of, names_of, row_of, unlike
from .saved_search import SavedSearch

_ALIKE = tuple(name for name in ALIKE if name not in ("rate_per_s", "duration_s", "arrivals"))
"""What a search varies itself is left out."""
_LEGEND = (
    "Ratios are to the first search. The noise of goodput is between the rates at which the "
    "95 % intervals of attainment leave the goal; that of the scale is its 95 % interval. A "
    "difference is within noise unless the interval of the difference, made of both, excludes 0."
)


def compare_searches(searches: Sequence[SavedSearch], folders: Sequence[Path]) -> Comparison:
    """The searches, which lie in these folders, each against the first.

    Raises `UsageError` for fewer than two, or for searches for different things.
    """
    runs = [search.run for search in searches]
    names = names_of(runs, folders)
    kinds = {search.goodput is None for search in searches}
    if len(kinds) > 1:
        raise UsageError("compare: some of the searches are for goodput, some for an SLO scale")
    columns = [{number.name: number for number in _numbers(search)} for search in searches]
    shared = [name for name in columns[0] if all(name in column for column in columns)]
    rows = [row_of([column[name] for column in columns]) for name in shared]
    notes = [f"{name}: {note}" for name, run in zip(names, runs, strict=True) for note in run.notes]
    what = "Tightest SLO scale" if kinds.pop() else "Goodput per device"
    return Comparison(
        headline=headline_of(what, names, rows[0]),
        names=names,
        rows=tuple(row for row in rows if any(cell.estimate is not None for cell in row.cells)),
        warnings=(*unlike(runs, _ALIKE), *notes),
        legend=_LEGEND,
    )


def _numbers(search: SavedSearch) -> list[Number]:
    """The result first."""
    if (scale := search.slo_scale) is not None:
        return [
            Number(
                "tightest SLO scale",
                Better.LOWER,
                wording.number,
                scale.tightest,
                too_few=isinf(scale.tightest.high),
            ),
            *(
                Number(
                    f"met both at {number_text(point.scale)}",
                    Better.HIGHER,
                    wording.share,
                    point.attainment.both(),
                )
                for point in scale.curve
            ),
        ]
    assert search.goodput is not None
    found = search.goodput
    fails = found.fails_at_per_s
    return [
        Number("goodput/s per device", Better.HIGHER, wording.number, found.estimate),
        Number("goodput/s", Better.HIGHER, wording.number, _exact(found.rate_per_s), False),
        Number("fails at, per s", Better.HIGHER, wording.number, _exact(fails), False),
    ]


def _exact(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(value, value, value)
