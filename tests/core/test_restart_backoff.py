"""The wait before a restart."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.restart_backoff import RestartBackoff


def test_the_wait_doubles_up_to_a_bound() -> None:
    backoff = RestartBackoff(0.5)
    waits = [backoff.died(None, now=float(death)) for death in range(9)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0]
    assert backoff.early_deaths == 9


def test_a_long_healthy_life_makes_the_wait_short_again() -> None:
    backoff = RestartBackoff(1.0)
    assert [backoff.died(0.0, 1.0), backoff.died(2.0, 3.0)] == [1.0, 2.0]
    assert backoff.died(ready_at=10.0, now=10.0 + backoff.longest_s) == 1.0
    assert backoff.early_deaths == 1


@given(st.floats(0.01, 3600), st.lists(st.floats(0, 1e6), max_size=20))
@settings(deadline=None, max_examples=100)
def test_never_more_often_than_configured(first_s: float, lives: list[float]) -> None:
    backoff, now = RestartBackoff(first_s), 0.0
    for life in lives:
        wait = backoff.died(now, now + life)
        assert first_s <= wait <= backoff.longest_s
        now += life + wait
