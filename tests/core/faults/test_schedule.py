"""A schedule and a seed make one list of faults, whatever else is in it."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.faults import (
    GATEWAY,
    AnyWorker,
    At,
    Boundary,
    Crash,
    Every,
    FaultSchedule,
    Resume,
    ScheduleEntry,
    Stall,
    When,
    expand,
    preference,
)
from antiphon.errors import UsageError

SEEDS = st.integers(0, 2**40)
TRIGGERS = st.one_of(
    st.builds(At, st.floats(0, 200)),
    st.builds(
        Every,
        st.floats(0.5, 50),
        st.floats(0, 1),
        st.none() | st.integers(1, 20),
    ),
    st.builds(When, st.sampled_from(Boundary), st.integers(1, 9)),
)
ENTRIES = st.builds(
    ScheduleEntry,
    TRIGGERS,
    st.sampled_from([AnyWorker(), GATEWAY, "decode-0"]),
    st.sampled_from([Crash(None), Stall(1.0), Resume()]),
)
SCHEDULES = st.builds(FaultSchedule, SEEDS, st.lists(ENTRIES, max_size=6).map(tuple))
DURATION_S = 100.0


@given(SCHEDULES)
def test_faults_are_numbered_in_order_of_time_and_events_come_last(
    schedule: FaultSchedule,
) -> None:
    faults = expand(schedule, DURATION_S)
    assert faults == expand(schedule, DURATION_S)
    assert [fault.number for fault in faults] == list(range(len(faults)))
    times = [fault.trigger.seconds if isinstance(fault.trigger, At) else inf for fault in faults]
    assert times == sorted(times)
    assert all(time < DURATION_S or time == inf for time in times)


@given(SCHEDULES)
def test_each_fault_is_what_its_entry_says(schedule: FaultSchedule) -> None:
    for fault in expand(schedule, DURATION_S):
        entry = schedule.entries[fault.entry - 1]
        assert (fault.target, fault.action) == (entry.target, entry.action)
        assert fault.once is not isinstance(entry.trigger, Every)


@given(SCHEDULES, ENTRIES)
def test_one_more_entry_changes_no_time_of_the_others(
    schedule: FaultSchedule, more: ScheduleEntry
) -> None:
    longer = FaultSchedule(schedule.seed, (*schedule.entries, more))
    before = [(fault.entry, fault.trigger) for fault in expand(schedule, DURATION_S)]
    after = [(fault.entry, fault.trigger) for fault in expand(longer, DURATION_S)]
    assert [one for one in after if one[0] <= len(schedule.entries)] == before


@given(SEEDS, st.floats(0.5, 20), st.floats(0, 1), st.integers(1, 30))
def test_a_period_is_kept_within_its_jitter_and_its_count(
    seed: int, period_s: float, jitter: float, count: int
) -> None:
    entry = ScheduleEntry(Every(period_s, jitter, count), GATEWAY, Crash(None))
    faults = expand(FaultSchedule(seed, (entry,)), DURATION_S)
    assert len(faults) <= count
    at = 0.0
    for fault in faults:
        assert isinstance(fault.trigger, At)
        wait_s = fault.trigger.seconds - at
        assert period_s * (1 - jitter) - 1e-9 <= wait_s <= period_s * (1 + jitter) + 1e-9
        at = fault.trigger.seconds
    if len(faults) < count:
        assert at + period_s * (1 + jitter) >= DURATION_S


def test_without_jitter_the_times_are_the_multiples_of_the_period() -> None:
    entry = ScheduleEntry(Every(2.5), GATEWAY, Crash(None))
    faults = expand(FaultSchedule(9, (entry,)), 10.0)
    assert [fault.trigger for fault in faults] == [At(2.5), At(5.0), At(7.5)]


def test_another_seed_is_another_schedule() -> None:
    entry = ScheduleEntry(Every(1.0, 0.5), AnyWorker(), Crash(None))
    triggers = [
        [fault.trigger for fault in expand(FaultSchedule(seed, (entry,)), 20.0)] for seed in (1, 2)
    ]
    assert triggers[0] != triggers[1]


def test_more_faults_than_anybody_can_want_are_refused() -> None:
    entry = ScheduleEntry(Every(0.1), GATEWAY, Crash(None))
    with pytest.raises(UsageError, match="make every longer"):
        expand(FaultSchedule(1, (entry,)), 86400.0)


@given(SEEDS, st.permutations([f"w-{number}" for number in range(6)]), st.integers(0, 5))
def test_an_order_of_preference_depends_on_nobody_else(
    seed: int, names: list[str], away: int
) -> None:
    entry = ScheduleEntry(At(0.0), AnyWorker(), Crash(None))
    (fault,) = expand(FaultSchedule(seed, (entry,)), 1.0)
    order = preference(seed, fault, names)
    assert order == preference(seed, fault, sorted(names))
    rest = [name for name in names if name != f"w-{away}"]
    assert preference(seed, fault, rest) == tuple(n for n in order if n != f"w-{away}")
