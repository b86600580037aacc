"""A drill's goodput over time, with its faults, as a plot."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from antiphon.core.faults import CallOutcome, windowed
from antiphon.types import Seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MET, _MISSED, _FAULT, _CURVE = "#3a7d44", "#c0392b", "#555555", "#1f4e79"
_ABOVE, _BELOW = 1.06, -0.06
"""Where calls are marked: over the curve if they met their targets, else under it."""
_ROWS = 4
"""Names of faults that are close to each other stand in so many rows."""


def timeline_svg(
    calls: Sequence[CallOutcome],
    faults: Sequence[tuple[Seconds, str]],
    *,
    window_s: Seconds,
    reference: float | None,
) -> str:
    """SVG: attainment in moving windows, each call as a mark, each fault as a line with its name.

    `calls` are in order of their due times. The same input gives the same text.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "antiphon", "svg.fonttype": "none"}):
        figure = Figure(figsize=(11, 4.5), layout="constrained")
        axes = figure.add_subplot()
        _draw_faults(axes, faults)
        _draw_calls(axes, calls, window_s)
        if reference is not None:
            axes.axhline(reference, color=_CURVE, linestyle=":", label="without faults")
        axes.set_xlabel("seconds since the load began")
        axes.set_ylabel("share of calls within targets")
        axes.set_ylim(-0.12, 1.5)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _draw_calls(axes: "Axes", calls: Sequence[CallOutcome], window_s: Seconds) -> None:
    curve = windowed(calls, window_s)
    times, shares = [at for at, _ in curve], [share for _, share in curve]
    axes.plot(times, shares, color=_CURVE, label=f"over the next {window_s:g} s")
    marks = (
        (True, _ABOVE, _MET, "a call in time"),
        (False, _BELOW, _MISSED, "a call that was not"),
    )
    for met, height, colour, label in marks:
        due = [call.due_at_s for call in calls if call.met is met]
        axes.plot(due, [height] * len(due), "|", color=colour, label=label)


def _draw_faults(axes: "Axes", faults: Sequence[tuple[Seconds, str]]) -> None:
    for number, (at, name) in enumerate(faults):
        axes.axvline(at, color=_FAULT, linewidth=0.8, linestyle="--")
        height = 1.42 - 0.08 * (number % _ROWS)
        axes.text(at, height, f" {name}", fontsize=7, color=_FAULT, va="center")
