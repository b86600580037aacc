"""The breaker: its table, and laws that hold over any history of calls."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.tiers.breaker import Breaker, BreakerState
from antiphon.errors import BugError

FIRST_S, LONGEST_S = 1.0, 8.0


def breaker(failures: int = 3) -> Breaker:
    return Breaker(failures=failures, first_s=FIRST_S, longest_s=LONGEST_S)


def opened(failures: int = 3, now: float = 0.0) -> Breaker:
    made = breaker(failures)
    for _ in range(failures):
        assert made.allows(now)
        made.failed(now)
    assert made.state is BreakerState.OPEN
    return made


def test_opens_at_so_many_failures_in_a_row_and_not_before() -> None:
    some = breaker(3)
    for _ in range(5):
        some.failed(0.0)
        some.failed(0.0)
        some.succeeded()
    assert some.state is BreakerState.CLOSED
    for _ in range(3):
        some.failed(0.0)
    assert some.state is BreakerState.OPEN


def test_nobody_asks_while_it_cools_down_then_one_does() -> None:
    some = opened(now=10.0)
    assert some.ask_again_at() == 11.0
    assert not some.allows(10.999)
    assert some.allows(11.0)
    assert some.state is BreakerState.PROBING
    assert not some.allows(11.0)


def test_a_probe_that_succeeds_closes_it_and_the_next_wait_is_short_again() -> None:
    some = opened()
    assert some.allows(1.0)
    some.failed(1.0)
    assert some.ask_again_at() == 3.0
    assert some.allows(3.0)
    some.succeeded()
    assert some.state is BreakerState.CLOSED
    assert some.ask_again_at() is None
    for _ in range(3):
        some.failed(4.0)
    assert some.ask_again_at() == 5.0


def test_waits_double_up_to_the_bound() -> None:
    some = opened()
    now, waits = 0.0, []
    for _ in range(6):
        again = some.ask_again_at()
        assert again is not None
        waits.append(again - now)
        now = again
        assert some.allows(now)
        some.failed(now)
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_calls_from_before_it_opened_change_nothing() -> None:
    some = opened()
    some.succeeded()
    some.failed(0.5)
    assert some.state is BreakerState.OPEN
    assert some.ask_again_at() == 1.0
    assert some.opened == 1


def test_a_probe_that_never_reports_is_followed_by_another() -> None:
    some = opened()
    assert some.allows(1.0)
    assert not some.allows(1.5)
    assert some.allows(2.0)


@pytest.mark.parametrize(
    ("failures", "first_s", "longest_s"), [(0, 1, 2), (1, 0, 2), (1, 3, 2), (-1, 1, 1)]
)
def test_impossible_settings_are_a_bug(failures: int, first_s: float, longest_s: float) -> None:
    with pytest.raises(BugError):
        Breaker(failures=failures, first_s=first_s, longest_s=longest_s)


histories = st.lists(st.tuples(st.sampled_from(["ask", "ok", "bad"]), st.floats(0, 4)), max_size=60)


def check_history(some: Breaker, history: list[tuple[str, float]]) -> None:
    """While open at most one call a cool-down is let through, and waits stay within the bounds."""
    now = 0.0
    free_again = 0.0
    for what, later_s in history:
        now += later_s
        before, again = some.state, some.ask_again_at()
        match what:
            case "ask":
                allowed = some.allows(now)
                assert allowed == (before is BreakerState.CLOSED or now >= (again or 0.0))
                if allowed and before is BreakerState.PROBING:
                    assert now >= free_again
                free_again = some.ask_again_at() or 0.0
            case "ok":
                some.succeeded()
                assert (some.state is BreakerState.OPEN) == (before is BreakerState.OPEN)
            case _:
                some.failed(now)
                assert before is BreakerState.CLOSED or some.state is BreakerState.OPEN
        after = some.ask_again_at()
        assert (after is None) == (some.state is BreakerState.CLOSED)
        if after is not None and after != again:
            assert now + FIRST_S <= after <= now + LONGEST_S


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 4), histories)
def test_any_history(failures: int, history: list[tuple[str, float]]) -> None:
    check_history(breaker(failures), history)


class LetsAllProbe(Breaker):
    def allows(self, now: float) -> bool:
        return super().allows(now) or self.state is BreakerState.PROBING


class Forgetful(Breaker):
    """Its waits grow without a bound."""

    def failed(self, now: float) -> None:
        self._longest_s = 1e9
        super().failed(now)


@pytest.mark.parametrize("faulty", [LetsAllProbe, Forgetful])
def test_control_a_faulty_breaker_breaks_the_law(faulty: type[Breaker]) -> None:
    history = [("bad", 0.0), ("ask", 1.0), ("ask", 0.0)]
    for wait in (2.0, 4.0, 8.0, 16.0):
        history += [("bad", 0.0), ("ask", wait)]
    check_history(breaker(1), history)
    with pytest.raises(AssertionError):
        check_history(faulty(failures=1, first_s=FIRST_S, longest_s=LONGEST_S), history)
