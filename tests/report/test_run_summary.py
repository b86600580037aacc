"""Numbers of a run: nothing is lost, and examples that were counted by hand."""

import json
import math
from dataclasses import replace
from itertools import groupby

import pytest
from call_records import SLO, call, failure, load_run, many_calls
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import NO_TARGETS
from antiphon.report import encode_file, summarise
from antiphon.types import CallError, CallRecord, Slo, TokenSource

RELAXED = settings(deadline=None, max_examples=40)


@RELAXED
@given(many_calls(), st.floats(0, 2e4))
def test_no_call_is_lost(records: list, warmup_s: float) -> None:
    run = load_run(warmup_s=warmup_s, slos=(("", SLO), ("chat", NO_TARGETS)))
    summary = summarise(run, records)
    failed = sum(one.calls for one in summary.failures)
    assert summary.ok + failed == summary.calls
    assert summary.calls + summary.warmup_calls == len(records)
    assert sum(one.attainment.calls for one in summary.classes) == summary.calls
    assert sum(one.attainment.calls for one in summary.models) == summary.calls
    assert sum(one.attainment.met for one in summary.classes) == summary.overall.attainment.met
    assert sum(calls for _source, calls in summary.counted_by) == summary.ok
    assert summary.served <= summary.ok
    assert (summary.e2e.count if summary.e2e else 0) == summary.served


@RELAXED
@given(many_calls())
def test_both_targets_are_harder_than_each(records: list) -> None:
    summary = summarise(load_run(), records)
    for group in (summary.overall, *summary.classes, *summary.models):
        if not group.attainment.calls:
            continue
        assert group.both is not None
        assert group.ttft is not None
        assert group.tpot is not None
        assert group.both.value <= min(group.ttft.value, group.tpot.value)
        assert 0 <= group.both.low <= group.both.value <= group.both.high <= 1


@RELAXED
@given(many_calls(), st.randoms(use_true_random=False))
def test_the_order_of_calls_does_not_matter(records: list, chance) -> None:
    shuffled = list(records)
    chance.shuffle(shuffled)
    assert summarise(load_run(), records) == summarise(load_run(), shuffled)


def test_an_example_that_was_counted_by_hand() -> None:
    records = [
        call(0, due=0.5),  # in the warm-up
        call(1, due=1.0, ttft=0.2, tpot=0.02),
        call(2, due=2.0, ttft=0.4, tpot=0.06, prompt_tokens=300, cached_tokens=150),  # TPOT missed
        call(3, due=3.0, ttft=0.9, tpot=0.04),  # TTFT missed
        call(4, due=4.0, ttft=0.5, tokens=1),  # no TPOT; the target is hit exactly
        failure(5, due=5.0, message="", took=20.0),
        failure(6, due=6.0, message="too slow"),
        failure(7, due=7.0, error=CallError.OVERLOADED, message="full"),
    ]
    summary = summarise(load_run(warmup_s=1.0, duration_s=9.0, devices=2), records)
    assert (summary.calls, summary.ok, summary.served, summary.warmup_calls) == (7, 4, 4, 1)
    attainment = summary.overall.attainment
    assert (attainment.met, attainment.ttft_met, attainment.tpot_met) == (2, 3, 3)
    assert summary.overall.both is not None
    assert summary.overall.both.value == pytest.approx(2 / 7)
    # Wilson's interval of 2 of 7, as published tables have it.
    assert summary.overall.both.low == pytest.approx(0.0822, abs=5e-5)
    assert summary.overall.both.high == pytest.approx(0.6411, abs=5e-5)
    assert summary.window_s == 8.0
    assert summary.span_s == 8.0
    assert summary.offered_per_s == pytest.approx(7 / 8)
    assert summary.goodput_per_s == pytest.approx(2 / 8 / 2)
    assert summary.ok_per_s == pytest.approx(4 / 8)
    assert summary.output_tokens == 34
    assert summary.output_tokens_per_s == pytest.approx(34 / 8)
    assert summary.prompt_tokens == 600
    assert summary.cached_share == pytest.approx(0.25)
    assert [(one.kind, one.calls, one.example) for one in summary.failures] == [
        (CallError.TIMEOUT, 2, "too slow"),
        (CallError.OVERLOADED, 1, "full"),
    ]
    assert summary.ttft is not None
    assert summary.ttft.mean == pytest.approx((0.2 + 0.4 + 0.9 + 0.5) / 4)
    assert summary.ttft.p50 == pytest.approx(0.45)
    assert summary.tpot is not None
    assert (summary.tpot.count, summary.tpot.max) == (3, pytest.approx(0.06))
    assert summary.itl is not None
    assert summary.itl.count == 30
    assert summary.e2e is not None
    assert summary.e2e.max == pytest.approx(0.9 + 10 * 0.04)


def test_latencies_count_from_when_a_call_was_due() -> None:
    late = call(0, due=1.0)
    stalled = replace(late, sent_at_s=late.sent_at_s, due_at_s=0.25)
    summary = summarise(load_run(), [stalled])
    assert summary.ttft is not None
    assert summary.ttft.p50 == pytest.approx(0.85)
    assert summary.lateness is not None
    assert summary.lateness.max == pytest.approx(0.75)


def test_a_call_that_was_not_sent_was_not_sent_late() -> None:
    summary = summarise(load_run(), [failure(0, took=0.0, error=CallError.ABANDONED)])
    assert summary.lateness is None


def test_throughput_goes_on_until_the_last_answer() -> None:
    summary = summarise(load_run(duration_s=10.0), [call(0, due=9.0, ttft=11.0, tokens=1)])
    assert summary.window_s == 10.0
    assert summary.span_s == pytest.approx(20.0)
    assert summary.output_tokens_per_s == pytest.approx(1 / 20)


def test_a_class_has_its_own_targets_or_everybodys() -> None:
    lax = Slo(ttft_s=5.0, tpot_s=math.inf)
    run = load_run(slos=(("", SLO), ("batch", lax)))
    records = [
        call(0, ttft=1.0, slo_class="batch"),
        call(1, ttft=1.0, slo_class="chat"),
        call(2, ttft=0.1),
    ]
    summary = summarise(run, records)
    assert summary.overall.slo is None
    assert [(one.name, one.slo, one.attainment.met) for one in summary.classes] == [
        ("", SLO, 1),
        ("batch", lax, 1),
        ("chat", SLO, 0),
    ]


def test_models_are_told_apart() -> None:
    records = [call(0, model="b"), call(1, model="a"), failure(2, model="b")]
    summary = summarise(load_run(), records)
    assert [(one.name, one.attainment.calls, one.ok) for one in summary.models] == [
        ("a", 1, 1),
        ("b", 2, 1),
    ]


def test_a_session_is_met_if_all_of_its_calls_are() -> None:
    records = [
        call(0, session=0, due=2.0),
        call(1, session=0, turn=1, due=4.0),
        call(2, session=1, due=2.0),
        call(3, session=1, turn=1, due=3.0, ttft=0.6),
        call(4, session=2, due=2.0),
        failure(5, session=2, turn=1, due=3.0),
        # Begun in the warm-up: not a whole session.
        call(6, session=3, due=0.5),
        call(7, session=3, turn=1, due=2.0),
    ]
    sessions = summarise(load_run(warmup_s=1.0), records).sessions
    assert (sessions.sessions, sessions.met, sessions.most_calls) == (3, 1, 2)
    assert sessions.share is not None
    assert sessions.share.value == pytest.approx(1 / 3)
    assert sessions.e2e is not None
    assert sessions.e2e.count == 2
    assert sessions.e2e.max == pytest.approx(2.0 + 0.2)


def test_who_counted_tokens_is_told() -> None:
    records = [
        call(0),
        call(1, counted_by=TokenSource.PIECES),
        call(2, counted_by=TokenSource.PIECES),
        failure(3, counted_by=TokenSource.TOKENIZER),
    ]
    assert summarise(load_run(), records).counted_by == (
        (TokenSource.USAGE, 1),
        (TokenSource.PIECES, 2),
    )


def test_a_run_without_calls_has_no_latencies_and_no_rates() -> None:
    summary = summarise(load_run(), [])
    assert (summary.calls, summary.ok, summary.goodput_per_s, summary.ok_per_s) == (0, 0, 0.0, 0.0)
    assert summary.ttft is summary.tpot is summary.itl is summary.e2e is summary.lateness is None
    assert summary.time_line == ()
    assert summary.failures == ()


def test_a_run_of_failures_alone() -> None:
    summary = summarise(load_run(), [failure(number) for number in range(5)])
    assert (summary.calls, summary.ok, summary.overall.attainment.met) == (5, 0, 0)
    assert summary.ttft is None
    assert summary.goodput_per_s == 0.0


def test_a_warmup_as_long_as_the_run_leaves_nothing_to_divide_by() -> None:
    summary = summarise(load_run(duration_s=1.0, warmup_s=5.0), [call(0)])
    assert (summary.calls, summary.warmup_calls) == (0, 1)
    assert (summary.window_s, summary.goodput_per_s, summary.offered_per_s) == (0.0, 0.0, 0.0)


def test_an_end_without_content_is_no_success() -> None:
    summary = summarise(load_run(), [call(0, tokens=0)])
    assert (summary.ok, summary.served, summary.overall.attainment.met) == (1, 0, 0)


def test_many_calls_take_no_longer_each_than_few() -> None:
    """Counts steps, not seconds: each record is looked at a fixed number of times."""
    looks = {}
    for count in (200, 400):
        records = [_Watched(number) for number in range(count)]
        summarise(load_run(duration_s=100.0), records)
        looks[count] = sum(record.looks for record in records)
    assert looks[400] <= 2.2 * looks[200]


class _Watched:
    """A call that counts how often it is looked at."""

    def __init__(self, number: int) -> None:
        self.looks = 0
        self._record = call(number, due=number / 10)

    def __getattr__(self, name: str):
        self.looks += 1
        return getattr(self._record, name)


def test_a_hundred_thousand_calls() -> None:
    records = [
        call(number, due=number / 100, tokens=5, session=number // 4) for number in range(100_000)
    ]
    summary = summarise(load_run(duration_s=1000.0), records)
    assert summary.calls == summary.overall.attainment.met == 100_000
    assert summary.sessions.sessions == 25_000
    assert len(summary.time_line) <= 60


def test_groups_partition_as_the_standard_library_says() -> None:
    records = [call(number, slo_class="ab"[number % 2]) for number in range(7)]
    summary = summarise(load_run(), records)
    ordered = sorted(records, key=lambda record: record.slo_class)
    expected = [(name, len(list(of))) for name, of in groupby(ordered, lambda one: one.slo_class)]
    assert [(one.name, one.attainment.calls) for one in summary.classes] == expected


def test_tokens_that_nobody_reported_are_unknown_not_none() -> None:
    def tokens(*records: CallRecord) -> tuple[object, ...]:
        summary = summarise(load_run(), records)
        return (
            summary.prompt_tokens,
            summary.prompt_tokens_per_s is None,
            summary.cached_tokens,
            summary.cached_share,
        )

    silent, prompts_only = call(0, prompt_tokens=None), call(1)
    cold, warm = call(2, cached_tokens=0), call(3, cached_tokens=50)
    assert tokens(silent) == tokens() == (None, True, None, None)
    assert tokens(silent, prompts_only) == (100, False, None, None)
    assert tokens(cold) == (100, False, 0, 0.0)
    assert tokens(prompts_only, warm) == (200, False, 50, 0.25)


def test_of_no_calls_nothing_is_known() -> None:
    run = load_run(warmup_s=5.0)
    summary = summarise(run, [call(0, due=1.0)])
    overall = summary.overall
    assert (summary.calls, summary.warmup_calls) == (0, 1)
    assert overall.both is overall.ttft is overall.tpot is summary.sessions.share is None
    written = json.loads(encode_file(summary))
    assert written["overall"]["both"] is None
