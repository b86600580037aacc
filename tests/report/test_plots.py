"""Plots: well-formed, the same bytes each time, safe with any text, showing what they should."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import cache
from math import inf

import pytest
from call_records import SLO, call, failure
from found_searches import GOODPUT, NOTHING_MEASURED, NOTHING_PASSES, SLO_SCALE

from antiphon.core.goodput import Estimate, SloScale
from antiphon.report import Latencies
from antiphon.report.plots import (
    Bar,
    Curve,
    goodput_bars,
    latency_curves,
    png,
    rate_plot,
    scale_plot,
    svg,
    time_line_plot,
)
from antiphon.report.time_line import time_line
from antiphon.types import Slo

NASTY = "<b>\"&'</text><script>alert(1)</script> $x_{y}$ \\frac"
CALLS = [
    *(call(number, due=number / 7, ttft=0.05 + number / 300) for number in range(60)),
    *(failure(number, due=8.0) for number in range(60, 66)),
]
TIMES = Latencies.of(CALLS)
LINE = time_line(CALLS, [record.error is None for record in CALLS])
HELPLESS = SloScale(
    rate_per_s=2.0,
    goal=0.9,
    tightest=Estimate(inf, 3.0, inf),
    curve=SLO_SCALE.curve,
    calls=100,
    runs=1,
)

PLOTS = {
    "time line": time_line_plot(LINE, slo=SLO, warmup_s=2.0),
    "time line without targets": time_line_plot(LINE, slo=None),
    "time line of failures": time_line_plot(time_line(CALLS[60:], [False] * 6), slo=SLO),
    "one curve": latency_curves([Curve("", TIMES, SLO)]),
    "two curves": latency_curves(
        [Curve("A", TIMES, SLO), Curve(NASTY, TIMES, Slo(ttft_s=0.2, tpot_s=inf))]
    ),
    "more curves than colours": latency_curves([Curve(str(name), TIMES) for name in range(9)]),
    "no values": latency_curves([Curve("", Latencies.of([]), SLO)]),
    "one value": latency_curves([Curve("", Latencies.of([call(0, tokens=1)]), SLO)]),
    "values of zero": latency_curves([Curve("", Latencies.of([call(0, ttft=0.0, tpot=0.0)]))]),
    "rates": rate_plot(GOODPUT),
    "nothing passes": rate_plot(NOTHING_PASSES),
    "nothing measured": rate_plot(NOTHING_MEASURED),
    "scales": scale_plot(SLO_SCALE),
    "no scale helps": scale_plot(HELPLESS),
    "bars": goodput_bars([Bar("A", Estimate(2, 1.9, 2.2)), Bar(NASTY, Estimate(1, 0.5, inf))]),
    "bars of nothing": goodput_bars([Bar("A", Estimate(0, 0, 0))]),
}


@cache
def drawn_plot(name: str) -> str:
    """Drawing takes a while: once is enough."""
    return svg(PLOTS[name])


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_well_formed(name: str) -> None:
    root = ET.fromstring(drawn_plot(name))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("aria-label") == PLOTS[name].description


@pytest.mark.parametrize("name", ["time line", "rates", "bars"])
def test_a_plot_is_the_same_each_time(name: str) -> None:
    assert svg(PLOTS[name]) == drawn_plot(name)


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_loads_nothing_runs_nothing_and_says_no_date(name: str) -> None:
    drawn = drawn_plot(name)
    assert "<script" not in drawn
    assert "metadata" not in drawn
    assert not re.search(r'href="(?!#)', drawn)
    assert re.findall(r"https?://[^\"]+", drawn) in (
        ["http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"],
        ["http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"],
    )


def text_of(name: str) -> str:
    root = ET.fromstring(drawn_plot(name))
    return " | ".join(part.strip() for part in root.itertext() if part.strip())


@pytest.mark.parametrize("name", ["two curves", "bars"])
def test_text_from_elsewhere_is_text(name: str) -> None:
    """Not markup, and not a formula either; bars have room for its beginning alone."""
    assert "<b>\"&'</text><script>alert(1)" in text_of(name)
    assert "$x_{y}$ \\frac" in text_of("two curves")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("time line", ["warm-up", "arrivals a second", "failures a second", "in flight", "target"]),
        ("time line", ["seconds from the run's start", "tokens/s", "attainment", "calls/s"]),
        ("one curve", ["Time to first token", "End to end", "target", "share of gaps", "100 ms"]),
        ("two curves", ["A"]),
        ("no values", ["no values"]),
        (
            "rates",
            ["goal: 90 %", "goodput 2.00/s", "both targets: fails", "requests/s, of the whole"],
        ),
        ("scales", ["tightest 0.800", "SLO scale"]),
        ("bars", ["2.00", "1.00 (0.50×)", "requests/s per device"]),
    ],
)
def test_a_plot_says_what_it_shows(name: str, parts: list[str]) -> None:
    for part in parts:
        assert part in text_of(name), part


def test_no_goodput_is_marked_where_there_is_none() -> None:
    assert "goodput" not in text_of("nothing passes")
    assert "tightest" not in text_of("no scale helps")


def test_ids_of_two_plots_do_not_clash() -> None:
    one = set(re.findall(r'id="([^"]+)"', drawn_plot("rates")))
    other = set(re.findall(r'id="([^"]+)"', drawn_plot("time line")))
    assert one
    assert not one & other
    for drawn, ids in ((drawn_plot("rates"), one), (drawn_plot("time line"), other)):
        assert set(re.findall(r"url\(#([^)]+)\)", drawn)) <= ids
        assert set(re.findall(r'href="#([^"]+)"', drawn)) <= ids


def test_ink_takes_the_colour_of_the_page() -> None:
    drawn = drawn_plot("time line")
    assert "currentColor" in drawn
    assert "#010203" not in drawn


def test_a_picture_for_what_can_not_show_svg() -> None:
    assert png(PLOTS["rates"]).startswith(b"\x89PNG")


def test_a_users_own_settings_change_nothing_and_stay() -> None:
    import matplotlib as mpl

    before = drawn_plot("rates")
    with mpl.rc_context({"font.size": 30.0, "text.color": "red"}):
        assert svg(PLOTS["rates"]) == before
        assert mpl.rcParams["font.size"] == 30.0


def test_matplotlib_is_loaded_when_something_is_drawn() -> None:
    code = "import antiphon.report, sys; print('matplotlib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"
