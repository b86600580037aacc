"""What all plots have in common: colours, sizes, and how they become SVG.

Text, axes and grid take the page's colour (`currentColor`), on no background, so that a plot can be
read on a light page and on a dark one. Series have colours that colour-blind people can tell apart
(after Okabe & Ito), of middling lightness, and each its own line style or marker as well.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from .. import wording

INK = "#010203"
"""Stands for the page's text colour until the SVG is written."""
BLUE, ORANGE, GREEN, PURPLE, RED, GREY = (
    "#2a7fbf",
    "#d98200",
    "#0a9b72",
    "#b467a4",
    "#d5522b",
    "#8a8f98",
)
SERIES = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")
HATCHES = ("", "//", "..", "\\\\", "xx", "--")

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.16,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "figure.constrained_layout.use": True,
} | dict.fromkeys(
    (
        "text.color",
        "axes.edgecolor",
        "axes.labelcolor",
        "xtick.color",
        "ytick.color",
        "grid.color",
        "hatch.color",
    ),
    INK,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A drawing that is yet to be made. `name`: a word, different for each plot of a page.

    `description` says in words what is to be seen, for who can't see it. `draw` gets an empty
    `matplotlib.figure.Figure` of `size_in` inches.
    """

    name: str
    description: str
    size_in: tuple[float, float]
    draw: Callable[[Any], None]


def svg(plot: Plot) -> str:
    """An `<svg>` element to put into a page; its ids begin with the plot's name."""
    text = _saved(plot, "svg").decode()
    text = text[text.index("<svg ") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{plot.name}-", text)
    text = text.replace(INK, "currentColor")
    text = re.sub(r' d="[^"]*"', lambda path: _LONG_FRACTION.sub(r"\1", path[0]), text)
    label = plot.description.translate(_ATTRIBUTE)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def png(plot: Plot, *, dpi: int = 100) -> bytes:
    """The plot on white, for whatever can't show SVG."""
    return _saved(plot, "png", facecolor="white", dpi=dpi)


_LONG_FRACTION = re.compile(r"(\.\d\d)\d+")
"""Hundredths of a point are enough for anybody's eyes."""
_ATTRIBUTE = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def _saved(plot: Plot, kind: str, **options: Any) -> bytes:
    """Drawn with our settings alone, whatever the user's matplotlib is set to."""
    from matplotlib import rc_context, rcdefaults
    from matplotlib.figure import Figure

    buffer = BytesIO()
    dates = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with rc_context():
        rcdefaults()
        settings: dict[Any, Any] = {**_SETTINGS, "svg.hashsalt": plot.name}
        with rc_context(settings):
            figure = Figure(figsize=plot.size_in)
            plot.draw(figure)
            figure.savefig(buffer, format=kind, metadata=dates, **options)
    return buffer.getvalue()


def percent_axis(axes: Any, *, label: str) -> None:
    """A y axis of shares, from 0 % to 100 %."""
    axes.set_ylim(-0.02, 1.04)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], labels=["0 %", "25 %", "50 %", "75 %", "100 %"])
    axes.set_ylabel(label)


def seconds_axis(axis: Any) -> None:
    """Ticks of durations, as 10 ms or 2 s, on an axis of seconds."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _place: wording.target(value)))
    axis.set_minor_formatter(NullFormatter())


def round_ticks(axis: Any) -> None:
    """Ticks at 1, 2 and 5 of each decade of a logarithmic axis; only at 1 where there are many."""
    from matplotlib.ticker import LogLocator

    low, high = axis.get_view_interval()
    subs = (1.0, 2.0, 5.0) if high <= 150 * low else (1.0,)
    axis.set_major_locator(LogLocator(base=10.0, subs=subs, numticks=12))


def legend_beside_title(axes: Any, handles: Any = None) -> None:
    """A legend in one row over the panel's right end, where it hides no data."""
    handles = handles if handles is not None else axes.get_legend_handles_labels()[0]
    axes.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.1,
        ncols=len(handles),
    )


def is_wide(least: float, most: float) -> bool:
    """Whether values lie so far apart that an axis had better be logarithmic."""
    return least > 0 and most > 20 * least
