"""Goodput of several servers beside each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from antiphon.core.goodput import Estimate

from .. import wording
from .canvas import HATCHES, INK, SERIES, Plot

_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Bar:
    """Requests a second per device, and between which bounds they may well lie."""

    name: str
    per_device: Estimate


def goodput_bars(bars: Sequence[Bar], *, label: str = "goodput, requests/s per device") -> Plot:
    """A bar each, its interval, its number, and its ratio to the first."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        ends = [bar.per_device.value for bar in bars]
        for place, bar in enumerate(bars):
            _bar(axes, place, bar.per_device, ends[0])
        axes.set_yticks(range(len(bars)), labels=[_short(bar.name) for bar in bars])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, 1.3 * max(*ends, *(_bounds(bar.per_device)[1] for bar in bars), 1e-9))
        axes.set_xlabel(label)

    return Plot(
        name="goodput",
        description="Goodput of each run, with its interval",
        size_in=(9.0, 1.1 + 0.5 * len(bars)),
        draw=draw,
    )


def _bar(axes: Any, place: int, estimate: Estimate, first: float) -> None:
    low, high = _bounds(estimate)
    look = place % len(SERIES)
    axes.barh(place, estimate.value, height=0.6, color=SERIES[look], hatch=HATCHES[look], alpha=0.8)
    axes.errorbar(
        estimate.value,
        place,
        xerr=[[estimate.value - low], [high - estimate.value]],
        color=INK,
        capsize=3,
        linewidth=1.1,
    )
    text = wording.number(estimate.value)
    if place and first > 0:
        text += f" ({wording.ratio(estimate.value / first)})"
    axes.annotate(
        text, (high, place), xytext=(6, 0), textcoords="offset points", va="center", color=INK
    )


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _bounds(estimate: Estimate) -> tuple[float, float]:
    """Finite ones: a bar has no way to say that there is no bound."""
    high = estimate.high if estimate.high < float("inf") else estimate.value
    return min(estimate.low, estimate.value), max(high, estimate.value)
