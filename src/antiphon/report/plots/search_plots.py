"""Attainment against what a search varies: the rate, or how tight the targets are."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from antiphon.core.goodput import Estimate, Goodput, SloScale
from antiphon.core.number_text import number_text

from .. import wording
from .canvas import (
    BLUE,
    GREEN,
    INK,
    MARKERS,
    ORANGE,
    PURPLE,
    RED,
    SERIES,
    STYLES,
    Plot,
    is_wide,
    percent_axis,
    round_ticks,
)


def rate_plot(found: Goodput) -> Plot:
    """Every rate that was measured, with its interval, and the goodput that was found."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        rates = [probe.rate_per_s for probe in found.probes]
        _goal(axes, found.goal)
        _shares(axes, rates, [probe.attainment.ttft() for probe in found.probes], "TTFT alone")
        _shares(axes, rates, [probe.attainment.tpot() for probe in found.probes], "TPOT alone")
        for passes, label, color, marker in (
            (True, "both targets: passes", BLUE, "o"),
            (False, "both targets: fails", RED, "X"),
        ):
            chosen = [probe for probe in found.probes if probe.passes is passes]
            _points(
                axes,
                [probe.rate_per_s for probe in chosen],
                [probe.attainment.both() for probe in chosen],
                (label, color, marker),
            )
        sure = found.estimate
        if sure.low > 0 and isfinite(sure.high):
            low, high = sure.low * found.devices, sure.high * found.devices
            axes.axvspan(low, high, color=ORANGE, alpha=0.2, linewidth=0)
        if found.rate_per_s > 0:
            _mark(axes, found.rate_per_s, f"goodput {wording.rate(found.rate_per_s)}")
        _scale(axes, rates)
        axes.set_xlabel("requests/s, of the whole system")
        _legend(figure, axes)

    return Plot(
        name="rates",
        description="Attainment against the rate of requests, with 95 % intervals",
        size_in=(9.0, 4.4),
        draw=draw,
    )


def scale_plot(found: SloScale) -> Plot:
    """Attainment when both targets are so many times as long, and the tightest that holds."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        scales = [point.scale for point in found.curve]
        both = [point.attainment.both() for point in found.curve]
        _goal(axes, found.goal)
        _shares(axes, scales, [point.attainment.ttft() for point in found.curve], "TTFT alone")
        _shares(axes, scales, [point.attainment.tpot() for point in found.curve], "TPOT alone")
        axes.plot(scales, [estimate.value for estimate in both], color=BLUE)
        _points(axes, scales, both, ("both targets", BLUE, "o"))
        if isfinite(found.tightest.value) and found.tightest.value > 0:
            _mark(axes, found.tightest.value, f"tightest {wording.number(found.tightest.value)}")
        _scale(axes, scales)
        axes.set_xlabel("SLO scale: both targets are so many times as long (left: stricter)")
        _legend(figure, axes)

    return Plot(
        name="scales",
        description="Attainment against the scale of the targets, with 95 % intervals",
        size_in=(9.0, 4.4),
        draw=draw,
    )


def rate_curves(named: Sequence[tuple[str, Goodput]]) -> Plot:
    """Attainment against the rate per device, of several searches; the first six are shown."""
    curves = [
        (
            name,
            [probe.rate_per_s / found.devices for probe in found.probes],
            [probe.attainment.both() for probe in found.probes],
        )
        for name, found in named
    ]
    return _beside("ratecurves", curves, named[0][1].goal, "requests/s per device")


def scale_curves(named: Sequence[tuple[str, SloScale]]) -> Plot:
    """Attainment against the scale of the targets, of several searches; six are shown."""
    curves = [
        (
            name,
            [point.scale for point in found.curve],
            [point.attainment.both() for point in found.curve],
        )
        for name, found in named
    ]
    return _beside("scalecurves", curves, named[0][1].goal, "SLO scale (left: stricter)")


_Curve = tuple[str, list[float], list[Estimate]]


def _beside(name: str, curves: Sequence[_Curve], goal: float, label: str) -> Plot:
    shown = curves[: len(SERIES)]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        _goal(axes, goal)
        for place, (title, at, estimates) in enumerate(shown):
            if at:
                _points(axes, at, estimates, (title, SERIES[place], MARKERS[place]))
                values = [one.value for one in estimates]
                axes.plot(at, values, color=SERIES[place], linestyle=STYLES[place])
        _scale(axes, [value for _title, at, _estimates in shown for value in at])
        axes.set_xlabel(label)
        _legend(figure, axes, columns=3)

    return Plot(
        name=name,
        description=f"Attainment against {label}, of several searches",
        size_in=(9.0, 4.6),
        draw=draw,
    )


def _goal(axes: Any, goal: float) -> None:
    axes.axhline(
        goal, color=INK, linewidth=1.1, linestyle=(0, (4, 3)), label=f"goal: {wording.goal(goal)}"
    )
    percent_axis(axes, label="attainment")


def _shares(axes: Any, at: Sequence[float], estimates: Sequence[Estimate], label: str) -> None:
    color, style = (GREEN, "--") if label.startswith("TTFT") else (PURPLE, ":")
    axes.plot(at, [one.value for one in estimates], color=color, linestyle=style, label=label)


def _points(
    axes: Any, at: Sequence[float], estimates: Sequence[Estimate], look: tuple[str, str, str]
) -> None:
    if not at:
        return
    label, color, marker = look
    below = [one.value - one.low for one in estimates]
    above = [one.high - one.value for one in estimates]
    axes.errorbar(
        at,
        [one.value for one in estimates],
        yerr=[below, above],
        fmt=marker,
        color=color,
        capsize=3,
        label=label,
    )


def _mark(axes: Any, at: float, text: str) -> None:
    axes.axvline(at, color=ORANGE, linewidth=1.4)
    axes.annotate(
        text,
        (at, 0.0),
        xytext=(-4, 4),
        textcoords="offset points",
        rotation=90,
        ha="right",
        va="bottom",
        color=INK,
    )


def _scale(axes: Any, values: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    if not values or not is_wide(min(values), 5 * max(values)):
        return
    axes.set_xscale("log")
    round_ticks(axes.xaxis)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: number_text(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Any, axes: Any, columns: int = 5) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=columns)
