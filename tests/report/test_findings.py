"""The sentences: what was found, and what speaks against believing it."""

from dataclasses import replace
from math import inf

import pytest
from call_records import SLO, call, failure, load_run

from antiphon.core.goodput import Attainment, Estimate, Goodput, ScalePoint, SloScale, StopReason
from antiphon.report import doubts, headline, scale_headline, search_headline, summarise
from antiphon.types import CallRecord, LoadRun, Slo

MANY = [call(number, due=1 + number / 50) for number in range(400)]
QUIET = load_run(warmup_s=1.0, duration_s=9.0)


def said(run: LoadRun, records: list[CallRecord]) -> str:
    return "\n".join(doubts(run, summarise(run, records)))


def test_a_sound_run_has_no_doubts() -> None:
    assert said(QUIET, MANY) == ""


def test_the_headline_says_it_all() -> None:
    """The failures lie apart: those in a row would tell of a queue, and widen the interval."""
    failed = range(14, 400, 14)
    records = [
        failure(one.number, due=one.due_at_s) if one.number in failed else one for one in MANY
    ]
    assert headline(QUIET, summarise(QUIET, records)) == (
        "At 50.0 requests/s (2 planned) 93.0 % (90.1–95.1) of 400 calls met TTFT ≤ 500 ms and "
        "TPOT ≤ 50 ms."
    )


@pytest.mark.parametrize(
    ("slos", "end"),
    [
        ((("", Slo(ttft_s=1.5, tpot_s=inf)),), "met TTFT ≤ 1.5 s."),
        ((("", Slo(ttft_s=inf, tpot_s=0.05)),), "met TPOT ≤ 50 ms."),
        ((), "100 % of 400 calls came to their end; no targets were set."),
        ((("chat", SLO), ("code", SLO)), "came to their end; no targets were set."),
    ],
)
def test_the_headline_names_the_targets_that_there_are(slos: tuple, end: str) -> None:
    run = replace(QUIET, slos=slos)
    assert headline(run, summarise(run, MANY)).endswith(end)


def test_classes_with_different_targets_are_not_named_in_the_headline() -> None:
    run = replace(QUIET, slos=(("", SLO), ("batch", Slo(ttft_s=9.0, tpot_s=1.0))))
    records = [*MANY, call(400, slo_class="batch", due=3.0)]
    assert headline(run, summarise(run, records)).endswith("met the targets of their class.")


def test_a_rate_that_came_about_is_said_once() -> None:
    run = replace(QUIET, rate_per_s=50.0)
    assert headline(run, summarise(run, MANY)).startswith("At 50 requests/s 100 %")


def test_a_trace_has_a_rate_of_its_own() -> None:
    run = replace(QUIET, rate_per_s=None)
    assert headline(run, summarise(run, MANY)).startswith(
        "At 50.0 requests/s (at the trace's own times) "
    )


def test_nothing_is_told_of_no_calls() -> None:
    assert "nothing to judge by" in headline(QUIET, summarise(QUIET, []))
    assert said(QUIET, []) == ""


@pytest.mark.parametrize(
    ("run", "records", "doubt"),
    [
        (replace(QUIET, notes=("The client fell behind.",)), MANY, "The client fell behind."),
        (QUIET, [*MANY, failure(400, due=3.0)], "1 call of 401 failed (0.2 %)"),
        (QUIET, [*MANY, call(400, due=3.0, tokens=0)], "1 call came to their end without"),
        (QUIET, [replace(one, cached_tokens=90) for one in MANY], "90.0 % of the prompts' tokens"),
        (QUIET, MANY[:50], "Only 50 calls"),
        (replace(QUIET, warmup_s=0.0), MANY, "There was no warm-up"),
        (
            QUIET,
            [*MANY[:361], *(failure(number, due=3.0) for number in range(361, 400))],
            "reaches over 90 %",
        ),
    ],
)
def test_what_is_doubtful_is_said(run: LoadRun, records: list[CallRecord], doubt: str) -> None:
    assert doubt in said(run, records)


def test_calls_that_pile_up_are_seen() -> None:
    """Twice as many come as end: the queue grows until the last."""
    piling = [
        call(number, due=number / 20, ttft=0.1 + number / 20, tokens=1) for number in range(400)
    ]
    steady = [call(number, due=number / 20, ttft=2.0, tokens=1) for number in range(400)]
    run = load_run(duration_s=20.0, warmup_s=1.0)
    assert "piled up" in said(run, piling)
    assert "piled up" not in said(run, steady)


def found(stopped: StopReason, rate: float, fails: float | None, devices: int = 1) -> Goodput:
    return Goodput(
        rate_per_s=rate,
        fails_at_per_s=fails,
        goal=0.9,
        devices=devices,
        stopped=stopped,
        probes=(),
    )


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            found(StopReason.FOUND, 2.0, 2.04, devices=2),
            "Goodput is 1.00 requests/s per device (2.00 on 2); 2.04/s fails.",
        ),
        (found(StopReason.ALL_FAIL, 0.0, 0.05), "Goodput is 0: even 0.0500/s fails."),
        (
            found(StopReason.ALL_PASS, 64.0, None),
            "Goodput is at least 64.0 requests/s per device: the highest rate that was allowed "
            "passes.",
        ),
        (
            found(StopReason.OUT_OF_RUNS, 2.0, 3.0),
            "Goodput is about 2.00 requests/s per device; 3.00/s fails: all runs that were "
            "allowed are spent.",
        ),
        (
            found(StopReason.NO_CALLS, 0.0, None),
            "Goodput is unknown: a run had no call after its warm-up.",
        ),
        (
            found(StopReason.UNFINISHED, 2.0, 4.0),
            "Goodput is at least 2.00 requests/s per device, as far as was measured; 4.00/s fails.",
        ),
    ],
)
def test_what_a_search_found(result: Goodput, sentence: str) -> None:
    assert search_headline(result) == sentence


@pytest.mark.parametrize(
    ("tightest", "sentence"),
    [
        (Estimate(0.8, 0.7, 0.95), "90 % of 100 calls meet targets that are 0.800 (0.70–0.95)"),
        (Estimate(0.8, 0.7, inf), "meet targets that are 0.800 (at least 0.70) times as long."),
        (Estimate(inf, 3.0, inf), "no targets, however lax, are met by 90 % of 100 calls"),
    ],
)
def test_what_a_search_over_scales_found(tightest: Estimate, sentence: str) -> None:
    curve = (ScalePoint(1.0, Attainment(calls=100, met=95)),)
    result = SloScale(rate_per_s=2.0, goal=0.9, tightest=tightest, curve=curve, calls=100, runs=1)
    assert sentence in scale_headline(result)
