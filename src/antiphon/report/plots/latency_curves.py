"""How latencies are distributed: which share of the calls took at most so long."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from antiphon.core.goodput import GOAL
from antiphon.types import Seconds, Slo

from ..run_summary import Latencies
from .canvas import GREY, INK, SERIES, STYLES, Plot, percent_axis, round_ticks, seconds_axis

_POINTS = 400
"""Of a curve; more are not to be seen."""
_CURVES = len(SERIES)


@dataclass(frozen=True, slots=True)
class Curve:
    """The latencies of a run or a class, and what they were held to (None: to nothing common)."""

    name: str
    latencies: Latencies
    slo: Slo | None = None


def latency_curves(curves: Sequence[Curve], *, name: str = "latencies") -> Plot:
    """Four panels: TTFT, TPOT, ITL and end to end; the first six curves in each."""
    shown = curves[:_CURVES]

    def draw(figure: Any) -> None:
        panels = figure.subplots(2, 2).flat
        _panel(next(panels), "Time to first token", shown, "ttft_s")
        _panel(next(panels), "Time per output token, of each call", shown, "tpot_s")
        _panel(next(panels), "Gap between pieces of content (ITL)", shown, "itl_s")
        _panel(next(panels), "End to end", shown, "e2e_s")
        if len(shown) > 1:
            _legend(figure, shown)

    return Plot(
        name=name,
        description="Cumulative distributions of TTFT, TPOT, ITL and end-to-end time, with targets",
        size_in=(9.0, 6.2 if len(shown) > 1 else 5.8),
        draw=draw,
    )


def _panel(axes: Any, title: str, curves: Sequence[Curve], field: str) -> None:
    axes.set_title(title)
    percent_axis(axes, label="share of calls" if field != "itl_s" else "share of gaps")
    axes.axhline(GOAL, color=GREY, linewidth=0.8, linestyle=(0, (2, 2)))
    drawn = [
        _curve(axes, sorted(getattr(curve.latencies, field)), place)
        for place, curve in enumerate(curves)
    ]
    if not any(drawn):
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", color=INK)
        axes.set_xticks([])
        return
    axes.set_xscale("log")
    _targets(axes, curves, field)
    _at_least_a_decade(axes)
    seconds_axis(axes.xaxis)
    round_ticks(axes.xaxis)


def _curve(axes: Any, ordered: Sequence[Seconds], place: int) -> bool:
    """A step up at each value; fewer steps where there are very many."""
    count = len(ordered)
    if count == 0:
        return False
    steps = min(count, _POINTS)
    ranks = [round((step + 1) * count / steps) for step in range(steps)]
    # A logarithmic axis has no place for 0.
    times = [max(ordered[rank - 1], 1e-6) for rank in ranks]
    shares = [rank / count for rank in ranks]
    axes.plot(
        [times[0], *times],
        [0.0, *shares],
        drawstyle="steps-post",
        color=SERIES[place],
        linestyle=STYLES[place],
    )
    return True


def _targets(axes: Any, curves: Sequence[Curve], field: str) -> None:
    """A line at each target that there is; curves that share one share its line."""
    if field not in ("ttft_s", "tpot_s"):
        return
    places: dict[float, list[int]] = {}
    for place, curve in enumerate(curves):
        if curve.slo is not None and isfinite(target := getattr(curve.slo, field)) and target > 0:
            places.setdefault(target, []).append(place)
    for target, sharing in places.items():
        color = INK if len(sharing) == len(curves) else SERIES[sharing[0]]
        axes.axvline(target, color=color, linewidth=1.1, linestyle=(0, (4, 3)))
        axes.annotate(
            "target",
            (target, 0.0),
            xytext=(3, 3),
            textcoords="offset points",
            rotation=90,
            va="bottom",
            fontsize=8,
            color=color,
        )


def _at_least_a_decade(axes: Any) -> None:
    """Values that are all alike must not look as if they were far apart."""
    low, high = axes.get_xlim()
    if high < 10 * low:
        middle = (low * high) ** 0.5
        low, high = middle / 10**0.5, middle * 10**0.5
        axes.set_xlim(low, high)


def _legend(figure: Any, curves: Sequence[Curve]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=SERIES[place], linestyle=STYLES[place]) for place in range(len(curves))
    ]
    names = [curve.name or "others" for curve in curves]
    figure.legend(handles, names, loc="outside upper left", ncols=min(3, len(curves)))
