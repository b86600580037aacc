"""Searches side by side."""

from dataclasses import replace
from pathlib import Path

import pytest
from call_records import load_run
from found_searches import GOODPUT, NOTHING_MEASURED, SLO_SCALE

from antiphon.core.goodput import Estimate
from antiphon.errors import UsageError
from antiphon.report import Against, SavedSearch, compare_searches, compare_searches_page

RUN = load_run(title="A")
FOLDERS = [Path("a"), Path("b")]


def slower(by: float) -> SavedSearch:
    """The same search at rates that are so many times as high."""
    probes = tuple(replace(one, rate_per_s=one.rate_per_s * by) for one in GOODPUT.probes)
    found = replace(GOODPUT, probes=probes, rate_per_s=2.0 * by, fails_at_per_s=2.1 * by)
    return SavedSearch(run=replace(RUN, title="B"), goodput=found)


FIRST = SavedSearch(run=RUN, goodput=GOODPUT)


@pytest.mark.parametrize(
    ("by", "against"),
    [(1.0, Against.WITHIN_NOISE), (0.25, Against.WORSE), (4.0, Against.BETTER)],
)
def test_goodput_is_held_against_the_first(by: float, against: Against) -> None:
    comparison = compare_searches([FIRST, slower(by)], FOLDERS)
    row = comparison.rows[0]
    assert row.name == "goodput/s per device"
    assert row.cells[1].against is against
    assert row.cells[1].ratio == pytest.approx(by)
    assert comparison.headline == (f"Goodput per device, against A: B {by:.2f}× {against}.")
    assert comparison.warnings == ()


def test_scales_are_held_against_the_first() -> None:
    lax = replace(SLO_SCALE, tightest=Estimate(1.6, 1.5, 1.7))
    first = SavedSearch(run=RUN, slo_scale=SLO_SCALE)
    second = SavedSearch(run=replace(RUN, title="B"), slo_scale=lax)
    comparison = compare_searches([first, second], FOLDERS)
    assert comparison.headline == "Tightest SLO scale, against A: B 2.00× worse."
    assert [row.name for row in comparison.rows] == [
        "tightest SLO scale",
        "met both at 0.5",
        "met both at 1",
        "met both at 2",
    ]


def test_other_scales_are_left_out() -> None:
    second = SavedSearch(run=RUN, slo_scale=replace(SLO_SCALE, curve=SLO_SCALE.curve[1:]))
    first = SavedSearch(run=RUN, slo_scale=SLO_SCALE)
    rows = compare_searches([first, second], FOLDERS).rows
    assert [row.name for row in rows] == ["tightest SLO scale", "met both at 1", "met both at 2"]


def test_what_a_search_varies_itself_may_differ() -> None:
    other = replace(slower(1.0), run=replace(RUN, title="B", rate_per_s=None, duration_s=3.0))
    assert compare_searches([FIRST, other], FOLDERS).warnings == ()
    other = replace(other, run=replace(other.run, seed=3, notes=("Broken off.",)))
    assert compare_searches([FIRST, other], FOLDERS).warnings == (
        "The runs differ in more than the server: seed. Differences between their numbers may "
        "come from that.",
        "B: Broken off.",
    )


def test_searches_for_different_things_are_not_compared() -> None:
    with pytest.raises(UsageError, match="some of the searches are for goodput, some for an SLO"):
        compare_searches([FIRST, SavedSearch(run=RUN, slo_scale=SLO_SCALE)], FOLDERS)
    with pytest.raises(UsageError, match="at least two"):
        compare_searches([FIRST], FOLDERS[:1])


@pytest.mark.parametrize(
    "searches",
    [
        [FIRST, slower(0.5)],
        [FIRST, SavedSearch(run=RUN, goodput=NOTHING_MEASURED)],
        [SavedSearch(run=RUN, slo_scale=SLO_SCALE)] * 2,
    ],
)
def test_there_is_a_page_of_them(searches: list[SavedSearch]) -> None:
    comparison = compare_searches(searches, FOLDERS)
    page = compare_searches_page(comparison, searches)
    assert comparison.headline in page.replace("&#39;", "'")
    assert page.count("<svg ") == (2 if searches[0].goodput else 1)
    assert page.count("<script") == 0
