"""Runs, or searches, side by side as a page."""

from collections.abc import Sequence

from antiphon.core.goodput import after_warmup
from antiphon.types import LoadRun

from . import wording
from .comparison import Against, Cell, Comparison
from .page import drawn, facts, rendered
from .plots import Bar, Curve, goodput_bars, latency_curves, rate_curves, scale_curves
from .run_comparison import GOODPUT
from .run_folder import SavedRun
from .run_summary import Latencies
from .saved_search import SavedSearch


def compare_page(comparison: Comparison, runs: Sequence[SavedRun]) -> str:
    """The runs that were compared, side by side."""
    names = comparison.names
    curves = [
        Curve(
            name,
            Latencies.of(after_warmup(saved.records, saved.run.warmup_s)),
            saved.summary.overall.slo,
        )
        for name, saved in zip(names, runs, strict=True)
    ]
    return _page(
        comparison,
        [saved.run for saved in runs],
        bars=_bars(comparison),
        bars_caption=(
            "Calls that met both targets, a second and per device, with the 95 % interval of their "
            "share. It is what came of this load, not the most that a server can do: for that, "
            "search for goodput."
        ),
        curves=drawn(latency_curves(curves)),
        curves_caption=(
            "The share of the served calls that took at most so long: further left is better. The "
            "right end of a curve is its slowest calls. Dashed: the targets; dotted: 90 %."
        ),
    )


def _bars(comparison: Comparison) -> str:
    """Goodput beside goodput; nothing where that can't be compared."""
    cells = [cell for row in comparison.rows if row.name == GOODPUT for cell in row.cells]
    bars = [
        Bar(name, cell.estimate)
        for name, cell in zip(comparison.names, cells, strict=False)
        if cell.estimate is not None and cell.against is not Against.OTHER_RATE
    ]
    if len(bars) < len(comparison.names):
        return ""
    return drawn(goodput_bars(bars, label="calls within targets, per second and device"))


def compare_searches_page(comparison: Comparison, searches: Sequence[SavedSearch]) -> str:
    """The searches that were compared, side by side."""
    named = list(zip(comparison.names, searches, strict=True))
    goodputs = [(name, search.goodput) for name, search in named if search.goodput is not None]
    scales = [(name, search.slo_scale) for name, search in named if search.slo_scale is not None]
    return _page(
        comparison,
        [search.run for search in searches],
        bars=drawn(goodput_bars([Bar(name, one.estimate) for name, one in goodputs]))
        if goodputs
        else "",
        bars_caption=(
            "The highest rate, per device, at which the goal is still met. The line reaches over "
            "the rates at which the 95 % interval of attainment holds the goal."
        ),
        curves=drawn(rate_curves(goodputs) if goodputs else scale_curves(scales)),
        curves_caption=(
            "Attainment, with 95 % intervals: the further right a server stays above the goal, the "
            "more it serves."
            if goodputs
            else "Attainment, with 95 % intervals, when both targets are so many times as long: "
            "the further left a server stays above the goal, the stricter targets it keeps."
        ),
    )


def _page(comparison: Comparison, runs: Sequence[LoadRun], **plots: str) -> str:
    names = comparison.names
    told = [facts(run) for run in runs]
    columns = [names[0], *(column for name in names[1:] for column in (name, ""))]
    return rendered(
        "compare.html",
        runs[0],
        title=f"{names[0]} against {', '.join(names[1:])}",
        headline=comparison.headline,
        warnings=comparison.warnings,
        columns=("", "better", *columns),
        rows=[(row.name, row.better.value, *_compared(row.cells)) for row in comparison.rows],
        text_columns=(1, *range(4, 2 + len(columns), 2)),
        legend=comparison.legend,
        run_columns=("", *names),
        run_text_columns=range(1, 1 + len(names)),
        run_rows=[
            (fact, *(dict(one)[fact] or wording.NOTHING for one in told)) for fact, _ in told[0]
        ],
        **plots,
    )


def _compared(cells: Sequence[Cell]) -> list[str]:
    """A number each; behind all but the first what it means."""
    first, *others = cells
    return [first.text, *(text for cell in others for text in (cell.text, cell.against_first))]
