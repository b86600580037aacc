"""The verdict on a call."""

import math

import pytest
from goodput_kit import call, calls, slos
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import NO_TARGETS, Verdict, judge, needed_scale, scaled, slo_of
from antiphon.errors import UsageError
from antiphon.types import CallError, CallRecord, Slo

CHAT = Slo(ttft_s=0.5, tpot_s=0.05)
MISSED = Verdict(ttft_met=False, tpot_met=False)


def test_a_target_that_is_hit_exactly_is_met() -> None:
    record = call(ttft=0.5, gaps=[0.0625, 0.0625])
    assert judge(record, Slo(ttft_s=0.5, tpot_s=0.0625)).met
    assert not judge(record, Slo(ttft_s=math.nextafter(0.5, 0), tpot_s=0.0625)).met
    assert not judge(record, Slo(ttft_s=0.5, tpot_s=math.nextafter(0.0625, 0))).met


def test_each_target_is_judged_alone() -> None:
    assert judge(call(ttft=0.6), CHAT) == Verdict(ttft_met=False, tpot_met=True)
    assert judge(call(gaps=[0.1]), CHAT) == Verdict(ttft_met=True, tpot_met=False)


@pytest.mark.parametrize("error", CallError)
def test_a_call_that_failed_misses_all(error: CallError) -> None:
    assert judge(call(error=error), NO_TARGETS) == MISSED
    assert needed_scale(call(error=error), CHAT) == math.inf


def test_a_call_without_content_misses_all() -> None:
    assert judge(call(ttft=None), NO_TARGETS) == MISSED


def test_one_token_counts_by_its_first() -> None:
    strict = Slo(ttft_s=0.5, tpot_s=1e-9)
    assert judge(call(gaps=[]), strict).met
    assert not judge(call(ttft=0.6, gaps=[]), strict).met


def test_targets_are_the_classes_own_else_everybodys_else_none() -> None:
    code = Slo(ttft_s=0.1, tpot_s=0.1)
    assert slo_of("code", {"": CHAT, "code": code}) == code
    assert slo_of("chat", {"": CHAT, "code": code}) == CHAT
    assert slo_of("chat", {"code": code}) == NO_TARGETS


@given(calls(), slos, st.floats(1.0, 10.0), st.floats(1.0, 10.0))
@settings(deadline=None, max_examples=150)
def test_softer_targets_are_met_by_whoever_met_the_harder(
    record: CallRecord, slo: Slo, more: float, yet_more: float
) -> None:
    softer = Slo(ttft_s=slo.ttft_s * more, tpot_s=slo.tpot_s * yet_more)
    before, after = judge(record, slo), judge(record, softer)
    assert before.ttft_met <= after.ttft_met
    assert before.tpot_met <= after.tpot_met


@given(calls(), slos)
@settings(deadline=None, max_examples=150)
def test_both_is_not_more_than_each(record: CallRecord, slo: Slo) -> None:
    verdict = judge(record, slo)
    assert verdict.met == (verdict.ttft_met and verdict.tpot_met)


@given(calls(), slos)
@settings(deadline=None, max_examples=200)
def test_the_scale_that_a_call_needs_is_the_smallest(record: CallRecord, slo: Slo) -> None:
    needed = needed_scale(record, slo)
    if 0 < needed < math.inf:
        assert judge(record, scaled(slo, needed)).met
        assert not judge(record, scaled(slo, needed * (1 - 1e-12))).met
    elif needed == 0:
        assert judge(record, scaled(slo, 1e-9)).met
    else:
        assert not judge(record, NO_TARGETS).met


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_is_a_positive_number(scale: float) -> None:
    with pytest.raises(UsageError, match="SLO scale"):
        scaled(CHAT, scale)


def test_no_target_stays_none() -> None:
    assert scaled(NO_TARGETS, 0.5) == NO_TARGETS
