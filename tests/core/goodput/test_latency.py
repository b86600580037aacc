"""Latencies of a call."""

import pytest
from goodput_kit import call, calls
from hypothesis import given, settings

from antiphon.core.goodput import e2e_s, gaps_s, served, tpot_s, ttft_s
from antiphon.types import CallError, CallRecord


def test_times_count_from_when_the_call_was_due() -> None:
    record = call(due=10.0, ttft=0.5, gaps=[0.1, 0.3], late=0.4)
    assert ttft_s(record) == pytest.approx(0.5)
    assert e2e_s(record) == pytest.approx(0.9)


def test_time_per_token_counts_tokens_not_pieces() -> None:
    one_by_one = call(gaps=[0.1, 0.1, 0.1, 0.1])
    in_two_pieces = call(gaps=[0.4], tokens=5)
    assert tpot_s(one_by_one) == pytest.approx(0.1)
    assert tpot_s(in_two_pieces) == pytest.approx(0.1)


def test_one_token_has_no_time_per_token() -> None:
    assert tpot_s(call(gaps=[])) is None
    assert tpot_s(call(ttft=None)) is None


def test_a_whole_answer_at_once_took_no_time_per_token() -> None:
    assert tpot_s(call(gaps=[], tokens=20)) == 0.0


def test_no_content_no_first_token() -> None:
    assert ttft_s(call(ttft=None)) is None
    assert gaps_s(call(ttft=None)) == ()


def test_a_stall_shows_in_the_gaps() -> None:
    assert gaps_s(call(ttft=0.25, gaps=[0.5, 2.0, 0.25])) == (0.5, 2.0, 0.25)


def test_served_is_to_the_end_and_with_content() -> None:
    assert served(call())
    assert not served(call(ttft=None))
    assert not served(call(error=CallError.CUT_SHORT))


@given(calls())
@settings(deadline=None, max_examples=200)
def test_the_parts_add_up(record: CallRecord) -> None:
    first, per_token = ttft_s(record), tpot_s(record)
    if first is not None:
        whole = record.token_at_s[-1] - record.due_at_s
        assert first + sum(gaps_s(record)) == pytest.approx(whole)
        if per_token is not None:
            assert first + per_token * (record.output_tokens - 1) == pytest.approx(whole)
