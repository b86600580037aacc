"""Attainment: its laws, and yardsticks that break them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from goodput_kit import (
    LAWS,
    Yardstick,
    call,
    calls,
    counted,
    law_a_late_client_changes_nothing,
    law_failing_helps_nobody,
    law_waiting_longer_helps_nobody,
    tables,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import Attainment, Slos, share
from antiphon.types import CallError, CallRecord, Slo

CHAT: Slos = (("", Slo(ttft_s=0.5, tpot_s=0.05)),)


def ignores_failed(records: Sequence[CallRecord], slos: Slos) -> Attainment:
    return Attainment.of([record for record in records if record.error is None], slos)


def counts_from_sending(records: Sequence[CallRecord], slos: Slos) -> Attainment:
    return Attainment.of([replace(one, due_at_s=one.sent_at_s) for one in records], slos)


def forgives_abandoned(records: Sequence[CallRecord], slos: Slos) -> Attainment:
    sent = [record for record in records if record.error is not CallError.ABANDONED]
    return Attainment.of(sent, slos)


def drops_the_unfinished(records: Sequence[CallRecord], slos: Slos) -> Attainment:
    """As a run does that does not wait for the last answers."""
    return Attainment.of([record for record in records if record.ended_at_s < 100.0], slos)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.no_cover
def test_ours_keeps_the_law(law: Callable[[Yardstick], None]) -> None:
    law(Attainment.of)


@pytest.mark.parametrize(
    ("law", "faulty"),
    [
        (law_failing_helps_nobody, ignores_failed),
        (law_failing_helps_nobody, forgives_abandoned),
        (law_a_late_client_changes_nothing, counts_from_sending),
        (law_waiting_longer_helps_nobody, drops_the_unfinished),
    ],
)
@pytest.mark.no_cover
def test_the_law_finds_a_faulty_yardstick(
    law: Callable[[Yardstick], None], faulty: Yardstick
) -> None:
    with pytest.raises(AssertionError):
        law(faulty)


def test_counts_both_and_each_alone() -> None:
    records = [call(), call(ttft=0.6), call(gaps=[0.1]), call(error=CallError.OVERLOADED)]
    attainment = Attainment.of(records, CHAT)
    assert attainment == Attainment(calls=4, met=1, ttft_met=2, tpot_met=2)
    assert attainment.both().value == 0.25
    assert attainment.ttft().value == attainment.tpot().value == 0.5


def test_each_class_by_its_own_targets() -> None:
    slos: Slos = (*CHAT, ("batch", Slo(ttft_s=10.0, tpot_s=1.0)))
    assert Attainment.of([call(ttft=5.0), call(ttft=5.0, slo_class="batch")], slos).met == 1


def test_the_warmup_is_cut_by_when_calls_were_due() -> None:
    early_but_slow = call(due=9.9, ttft=60.0)
    on_time = call(due=10.0)
    assert Attainment.of([early_but_slow, on_time], CHAT, warmup_s=10.0) == counted(1, 1)


def test_calls_that_were_never_sent_are_misses() -> None:
    abandoned = call(ttft=None, error=CallError.ABANDONED)
    assert Attainment.of([call(), abandoned], CHAT) == counted(1, 2)


def test_misses_in_a_row_say_less_than_misses_here_and_there() -> None:
    in_a_row = [call(due=at, ttft=9.0 if at < 20 else 0.1) for at in range(100)]
    spread = [call(due=at, ttft=9.0 if at % 5 == 0 else 0.1) for at in range(100)]
    alike, independent = Attainment.of(in_a_row, CHAT), Attainment.of(spread, CHAT)
    assert alike == independent
    assert alike.both().low < independent.both().low < independent.both().high < alike.both().high
    # In which order they are given is no matter: it is when they were due.
    assert Attainment.of(in_a_row[::-1], CHAT).both() == alike.both()


def test_runs_that_are_added_keep_what_they_know_of_neighbours() -> None:
    good = Attainment.of([call(due=at) for at in range(100)], CHAT)
    bad = Attainment.of([call(due=at, ttft=9.0) for at in range(100)], CHAT)
    both = (good + bad).both()
    assert both.value == 0.5
    assert both.high - both.low > 2 * (share(100, 200).high - share(100, 200).low)


def test_of_no_calls_nothing_is_known() -> None:
    nothing = Attainment.of([], CHAT).both()
    assert (nothing.value, nothing.low, nothing.high) == (0.0, 0.0, 1.0)


@given(st.lists(calls(), max_size=6), st.lists(calls(), max_size=6), tables)
@settings(deadline=None, max_examples=200)
def test_joint_is_at_most_each_and_parts_add_up(
    some: list[CallRecord], others: list[CallRecord], slos: Slos
) -> None:
    attainment = Attainment.of(some, slos)
    assert 0 <= attainment.met <= min(attainment.ttft_met, attainment.tpot_met)
    assert max(attainment.ttft_met, attainment.tpot_met) <= attainment.calls == len(some)
    assert attainment.met >= attainment.ttft_met + attainment.tpot_met - attainment.calls
    assert attainment + Attainment.of(others, slos) == Attainment.of(some + others, slos)
