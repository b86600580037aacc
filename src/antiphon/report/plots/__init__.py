"""Plots as SVG, drawn without a display; the same numbers give the same bytes."""

from .canvas import Plot, png, svg
from .goodput_bars import Bar, goodput_bars
from .latency_curves import Curve, latency_curves
from .search_plots import rate_curves, rate_plot, scale_curves, scale_plot
from .time_line_plot import time_line_plot

__all__ = [
    "Bar",
    "Curve",
    "Plot",
    "goodput_bars",
    "latency_curves",
    "png",
    "rate_curves",
    "rate_plot",
    "scale_curves",
    "scale_plot",
    "svg",
    "time_line_plot",
]
