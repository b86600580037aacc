"""What happened when, in four panels over one time axis."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from antiphon.core.goodput import GOAL
from antiphon.types import Seconds, Slo

from ..time_line import Interval
from .canvas import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    RED,
    Plot,
    is_wide,
    legend_beside_title,
    percent_axis,
    round_ticks,
    seconds_axis,
)


def time_line_plot(
    intervals: Sequence[Interval], *, slo: Slo | None, warmup_s: Seconds = 0.0
) -> Plot:
    """Calls, TTFT, attainment and tokens; `slo`: None if there is none that all calls share."""

    def draw(figure: Any) -> None:
        panels = figure.subplots(4, 1, sharex=True, height_ratios=(1.25, 1.0, 0.8, 0.8))
        _calls(panels[0], intervals)
        _first_tokens(panels[1], intervals, slo)
        _attainment(panels[2], intervals)
        _tokens(panels[3], intervals)
        for axes in panels:
            axes.margins(x=0.01)
            if warmup_s > 0:
                axes.axvspan(0, warmup_s, color=GREY, alpha=0.18, linewidth=0)
        if warmup_s > 0:
            _say_warmup(panels[0], warmup_s)
        panels[-1].set_xlabel("seconds from the run's start")

    return Plot(
        name="timeline",
        description="Arrivals, calls in flight, failures, TTFT, attainment and tokens over time",
        size_in=(9.0, 7.6),
        draw=draw,
    )


def _calls(axes: Any, intervals: Sequence[Interval]) -> None:
    rates = [one.arrivals / (one.end_s - one.begin_s) for one in intervals]
    failed = [one.failed / (one.end_s - one.begin_s) for one in intervals]
    edges = _edges(intervals)
    axes.set_title("Calls")
    axes.stairs(rates, edges, fill=True, color=BLUE, alpha=0.45, label="arrivals a second")
    axes.stairs(failed, edges, fill=True, color=RED, hatch="xxx", label="failures a second")
    axes.set_ylabel("calls/s")
    axes.set_ylim(0, 1.1 * max(*rates, *failed, 1e-9))
    beside = axes.twinx()
    beside.grid(visible=False)
    beside.spines["right"].set_visible(True)
    beside.plot(
        *_middles(intervals, [one.in_flight for one in intervals]), color=ORANGE, label="in flight"
    )
    beside.set_ylabel("calls in flight")
    beside.set_ylim(0, 1.1 * max(*(one.in_flight for one in intervals), 1e-9))
    handles = [*axes.get_legend_handles_labels()[0], *beside.get_legend_handles_labels()[0]]
    legend_beside_title(axes, handles)


def _first_tokens(axes: Any, intervals: Sequence[Interval], slo: Slo | None) -> None:
    axes.set_title("Time to first token, of the calls that were due then")
    drawn = [value for one in intervals for value in (one.ttft_p50_s, one.ttft_p99_s) if value]
    p50 = [one.ttft_p50_s for one in intervals]
    p99 = [one.ttft_p99_s for one in intervals]
    axes.plot(*_middles(intervals, p50), color=BLUE, marker=".", label="median")
    axes.plot(*_middles(intervals, p99), color=ORANGE, marker=".", linestyle="--", label="p99")
    if slo is not None and isfinite(slo.ttft_s):
        axes.axhline(slo.ttft_s, color=INK, linewidth=1.1, linestyle=(0, (4, 3)), label="target")
        drawn.append(slo.ttft_s)
    if drawn and is_wide(min(drawn), max(drawn)):
        axes.set_yscale("log")
        round_ticks(axes.yaxis)
    seconds_axis(axes.yaxis)
    axes.set_ylabel("TTFT")
    legend_beside_title(axes)


def _attainment(axes: Any, intervals: Sequence[Interval]) -> None:
    axes.set_title("Share of the calls that were due then that met both targets")
    shares = [one.met / one.arrivals if one.arrivals else None for one in intervals]
    axes.plot(*_middles(intervals, shares), color=GREEN, marker=".")
    axes.axhline(GOAL, color=INK, linewidth=1.1, linestyle=(0, (4, 3)))
    percent_axis(axes, label="attainment")


def _tokens(axes: Any, intervals: Sequence[Interval]) -> None:
    axes.set_title("Output tokens")
    rates = [one.output_tokens_per_s for one in intervals]
    axes.stairs(rates, _edges(intervals), fill=True, color=BLUE, alpha=0.45)
    axes.set_ylabel("tokens/s")


def _edges(intervals: Sequence[Interval]) -> list[float]:
    return [0.0, *(one.end_s for one in intervals)]


def _middles(
    intervals: Sequence[Interval], values: Sequence[float | None]
) -> tuple[list[float], list[float]]:
    """Points in the middle of intervals; one without a value is a gap in the line."""
    times = [(one.begin_s + one.end_s) / 2 for one in intervals]
    return times, [float("nan") if value is None else value for value in values]


def _say_warmup(axes: Any, warmup_s: Seconds) -> None:
    axes.annotate(
        "warm-up",
        (warmup_s / 2, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, -3),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=8,
        color=INK,
    )
