"""Times as they are written and read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.workload import duration_text, parse_duration


@settings(deadline=None)
@given(st.integers(0, 10**9 - 1), st.sampled_from([1, 1000]))
def test_a_time_is_read_back(number: int, parts: int) -> None:
    seconds = number / parts if number < 1000 else float(number)
    assert parse_duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60.0), ("1.5min", 90.0), ("200ms", 0.2), ("90", 90.0), ("2h", 7200.0), ("0", 0.0)],
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1e3s", "nan", "inf", "1s2", "1 week", "１s"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_duration(text) is None
