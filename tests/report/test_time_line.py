"""Intervals of a run: their sums are the run's, and a stall is where it was."""

from itertools import pairwise

import pytest
from call_records import call, failure, many_calls
from hypothesis import given, settings

from antiphon.report.time_line import time_line
from antiphon.types import CallRecord


def lines(records: list[CallRecord]):
    return time_line(records, [record.error is None for record in records])


@settings(deadline=None, max_examples=50)
@given(many_calls())
def test_sums_over_intervals_are_those_over_calls(records: list[CallRecord]) -> None:
    intervals = lines(records)
    ok = sum(record.error is None for record in records)
    assert sum(one.arrivals for one in intervals) == len(records)
    assert sum(one.finished for one in intervals) == ok
    assert sum(one.failed for one in intervals) == len(records) - ok
    assert sum(one.met for one in intervals) == ok
    tokens = sum(record.output_tokens for record in records)
    assert sum(one.output_tokens for one in intervals) == pytest.approx(tokens)
    # Little's law: the area under the calls in flight is the time that calls took.
    area = sum(one.in_flight * (one.end_s - one.begin_s) for one in intervals)
    took = sum(record.ended_at_s - record.sent_at_s for record in records)
    assert area == pytest.approx(took, abs=1e-6)


@settings(deadline=None, max_examples=50)
@given(many_calls())
def test_intervals_cover_the_run_without_gaps(records: list[CallRecord]) -> None:
    intervals = lines(records)
    assert len(intervals) <= 60
    if not records:
        assert intervals == ()
        return
    assert intervals[0].begin_s == 0.0
    assert intervals[-1].begin_s <= max(record.ended_at_s for record in records)
    assert intervals[-1].end_s > max(record.ended_at_s for record in records)
    for one, after in pairwise(intervals):
        assert one.end_s == after.begin_s
        assert one.end_s - one.begin_s == intervals[0].end_s
    assert intervals[0].end_s >= 1.0


@pytest.mark.parametrize(
    ("end_s", "width_s"), [(0.2, 1), (59.0, 1), (60.0, 2), (100.0, 2), (250.0, 5), (3000.0, 100)]
)
def test_intervals_are_round(end_s: float, width_s: float) -> None:
    intervals = lines([failure(0, took=end_s)])
    assert intervals[0].end_s == width_s


def test_a_stall_shows_where_users_came_into_it() -> None:
    """Calls of the second 2 … 4 get their first token at 5 s, however they were sent."""
    records = [
        call(number, due=due, ttft=max(0.1, 5.0 - due) if 2 <= due < 5 else 0.1, tokens=1)
        for number, due in enumerate([0.5, 1.5, 2.5, 3.5, 5.5])
    ]
    intervals = time_line(
        records, [record.token_at_s[0] - record.due_at_s < 1 for record in records]
    )
    assert [one.ttft_p99_s for one in intervals] == [
        pytest.approx(0.1),
        pytest.approx(0.1),
        pytest.approx(2.5),
        pytest.approx(1.5),
        None,
        pytest.approx(0.1),
    ]
    assert [one.met for one in intervals] == [1, 1, 0, 0, 0, 1]
    assert [one.output_tokens for one in intervals] == [1, 1, 0, 0, 0, 3]


def test_calls_in_flight_are_averaged() -> None:
    half = failure(0, due=0.5, took=1.0)
    intervals = lines([half, failure(1, due=0.0, took=2.0)])
    assert [one.in_flight for one in intervals] == pytest.approx([1.5, 1.5, 0.0])


def test_tokens_of_an_answer_that_was_not_streamed_come_at_its_end() -> None:
    intervals = lines([call(0, due=0.0, ttft=3.5, tokens=1, output_tokens=40)])
    assert [one.output_tokens for one in intervals] == [0, 0, 0, 40]
    assert intervals[3].output_tokens_per_s == 40


def test_tokens_without_a_stamp_come_at_the_end_too() -> None:
    intervals = lines([failure(0, took=1.5, output_tokens=7)])
    assert [one.output_tokens for one in intervals] == [0, 7]
