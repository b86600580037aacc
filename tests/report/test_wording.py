"""Numbers as people read them."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.goodput import Estimate
from antiphon.report import wording
from antiphon.types import CallError, Slo, TokenSource


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234.5, "1,230"),
        (123.4, "123"),
        (99.96, "100"),
        (9.996, "10.0"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (0.1234, "0.123"),
        (0.0012345, "0.00123"),
        (-12.34, "-12.3"),
        (inf, "inf"),
    ],
)
def test_numbers_have_three_digits_that_matter(value: float, text: str) -> None:
    assert wording.number(value) == text


@given(st.floats(1e-9, 1e12))
def test_no_number_is_off_by_more_than_half_its_third_digit(value: float) -> None:
    assert float(wording.number(value).replace(",", "")) == pytest.approx(value, rel=0.00501)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0483, "48.3 ms"), (0.9994, "999 ms"), (0.9996, "1.00 s"), (75.0, "75.0 s")],
)
def test_durations_have_a_fitting_unit(value: float | None, text: str) -> None:
    assert wording.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 %"),
        (0.0001, "< 0.1 %"),
        (0.931, "93.1 %"),
        (0.9, "90.0 %"),
        (0.99999, "> 99.9 %"),
        (1.0, "100 %"),
    ],
)
def test_only_all_is_all_and_only_nothing_is_nothing(value: float, text: str) -> None:
    assert wording.share(value) == text


def test_a_share_has_its_range() -> None:
    assert wording.share_with_range(Estimate(0.931, 0.902, 0.952)) == "93.1 % (90.2–95.2)"


def test_what_was_set_is_told_as_it_was_set() -> None:
    assert wording.set_rate(2.125) == "2.125 requests/s"
    assert wording.set_rate(1.0) == "1 request/s"
    assert (wording.goal(0.9), wording.goal(0.995)) == ("90 %", "99.5 %")


@pytest.mark.parametrize(
    ("slo", "text"),
    [
        (Slo(ttft_s=0.5, tpot_s=0.05), "TTFT ≤ 500 ms and TPOT ≤ 50 ms"),
        (Slo(ttft_s=2.5, tpot_s=inf), "TTFT ≤ 2.5 s"),
        (Slo(ttft_s=inf, tpot_s=inf), "no targets"),
        (None, "the targets of their class"),
    ],
)
def test_targets_are_named_as_they_were_set(slo: Slo | None, text: str) -> None:
    assert wording.slo(slo) == text


def test_every_kind_of_error_and_source_has_words() -> None:
    assert all(kind in wording.ERRORS for kind in CallError)
    assert all(source in wording.SOURCES for source in TokenSource)


@given(st.text())
def test_text_from_elsewhere_moves_no_cursor(text: str) -> None:
    assert wording.plain(text).isprintable()
    assert len(wording.plain(text)) == len(text)
