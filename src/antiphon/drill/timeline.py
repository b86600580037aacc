"""A drill's goodput over time, with its faults, as a plot."""

import io
from collections.abc import Sequence

from antiphon.core.faults import CallOutcome, windowed
from antiphon.types import Seconds

_MET, _MISSED, _FAULT, _CURVE = "#3a7d44", "#c0392b", "#7f8c8d", "#1f4e79"


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
        figure = Figure(figsize=(10, 4), layout="constrained")
        axes = figure.add_subplot()
        curve = windowed(calls, window_s)
        axes.plot(
            [at for at, _ in curve],
            [share for _, share in curve],
            color=_CURVE,
            label=f"share within targets, over the next {window_s:g} s",
        )
        if reference is not None:
            axes.axhline(reference, color=_CURVE, linestyle="--", label="without faults")
        for met, at, colour, label in (
            (True, 1.06, _MET, "met"),
            (False, -0.06, _MISSED, "missed"),
        ):
            due = [call.due_at_s for call in calls if call.met is met]
            axes.plot(due, [at] * len(due), "|", color=colour, label=f"a call that {label} them")
        for at, name in faults:
            axes.axvline(at, color=_FAULT, linewidth=0.8)
            axes.text(at, 0.5, f" {name}", rotation=90, fontsize=7, va="center")
        axes.set_xlabel("seconds since the load began")
        axes.set_ylabel("goodput")
        axes.set_ylim(-0.12, 1.12)
        axes.legend(loc="lower right", fontsize=7)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
