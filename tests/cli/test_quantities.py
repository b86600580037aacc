"""Times on a command line."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.cli.quantities import seconds
from antiphon.errors import UsageError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("500ms", 0.5),
        ("2s", 2.0),
        (" 2 s ", 2.0),
        ("1m", 60.0),
        ("1.5min", 90.0),
        ("2h", 7200.0),
        ("1d", 86_400.0),
    ],
)
def test_times(text: str, found: float) -> None:
    assert seconds(text, "--x") == pytest.approx(found)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-1s", "1e3s", "infs", "nan s", "1 y", "1s2s", "٣s"]
)
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        seconds(text, "--duration")
    assert str(refused.value).startswith(f'--duration "{text}": must be a time such as')


def test_no_time_at_all_is_one_only_where_it_makes_sense() -> None:
    assert seconds("0s", "--warmup", zero=True) == 0.0
    with pytest.raises(UsageError, match="more than 0"):
        seconds("0s", "--duration")


@given(st.text("0123456789.-+e msinhd") | st.text())
@settings(deadline=None, max_examples=300)
def test_any_text_is_a_time_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert 0 < seconds(text, "--x") < 1e15
