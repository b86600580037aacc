"""When a step may begin before its last layers are here."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.core.scheduler.early_start import (
    LEAST_GAIN_S,
    Arrival,
    PrefillPace,
    may_begin,
)

arrivals = st.integers(1, 40).flatmap(
    lambda groups: st.builds(
        Arrival,
        here=st.integers(0, groups),
        groups=st.just(groups),
        group_s=st.floats(0.0, 1.0),
    )
)


def waits(arrival: Arrival, step_s: float) -> list[float]:
    """How long each group of layers of a step that begins now waits, by the definition."""
    now, waited = 0.0, []
    for group in range(arrival.groups):
        comes_at = max(0, group + 1 - arrival.here) * arrival.group_s
        waited.append(max(0.0, comes_at - now))
        now = max(now, comes_at) + step_s / arrival.groups
    return waited


@settings(deadline=None)
@given(arrivals, st.floats(0.0, 4.0))
@example(Arrival(here=1, groups=2, group_s=0.1), 0.2)
def test_a_step_that_may_begin_waits_for_no_layer_and_gains_time(
    arrival: Arrival, step_s: float
) -> None:
    if may_begin(arrival, step_s):
        assert sum(waits(arrival, step_s)) < 1e-6
        assert (arrival.groups - arrival.here) * arrival.group_s >= LEAST_GAIN_S


@settings(deadline=None)
@given(arrivals, st.floats(0.0, 4.0))
def test_a_step_that_may_not_begin_would_wait_or_gain_nothing(
    arrival: Arrival, step_s: float
) -> None:
    """The other way round: else it would begin later than it could."""
    left_s = (arrival.groups - arrival.here) * arrival.group_s
    if not may_begin(arrival, step_s) and arrival.here and left_s >= LEAST_GAIN_S:
        assert sum(waits(arrival, step_s)) > -1e-9
        slack = waits(arrival, step_s * (1 - 1e-6))
        assert sum(slack) > 0


def test_nothing_begins_before_anything_is_here_or_when_all_is() -> None:
    for here in (0, 4):
        assert not may_begin(Arrival(here=here, groups=4, group_s=0.01), step_s=100.0)


def test_the_pace_is_of_steps_that_compute_several_tokens() -> None:
    pace = PrefillPace()
    pace.observed(1, 5.0)
    assert pace.seconds(100) is None
    pace.observed(100, 0.1)
    assert pace.seconds(200) == 0.2
    assert pace.seconds(1) == pace.seconds(8), "the weights are read once, whatever is computed"
    for _ in range(50):
        pace.observed(100, 0.2)
    assert abs((pace.seconds(100) or 0.0) - 0.2) < 1e-3
