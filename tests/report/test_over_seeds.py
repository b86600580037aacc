"""Runs that differ by their seed: means, spreads and their table."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import Goodput, StopReason
from antiphon.report import (
    goodput_over_seeds,
    over_seeds,
    printed,
    seeds_table,
    summarise,
)
from antiphon.report.strict_json import encode_file
from antiphon.types import CallError, CallRecord, LoadRun, Slo

RUN = LoadRun(
    title="t",
    target="a fleet",
    workload="w",
    arrivals="a",
    duration_s=10.0,
    slos=(("", Slo(ttft_s=0.5, tpot_s=0.1)),),
    devices=2,
)


def call(number: int, ttft_s: float, error: CallError | None = None) -> CallRecord:
    return CallRecord(
        number=number,
        session=number,
        turn=0,
        due_at_s=float(number),
        sent_at_s=float(number),
        token_at_s=() if error else (number + ttft_s, number + ttft_s + 0.05),
        ended_at_s=number + ttft_s + 0.05,
        output_tokens=0 if error else 2,
        error=error,
    )


def of(*ttfts: float) -> list[CallRecord]:
    return [call(number, ttft_s) for number, ttft_s in enumerate(ttfts)]


@given(st.lists(st.lists(st.floats(0.01, 2.0), min_size=1, max_size=8), min_size=1, max_size=5))
@settings(deadline=None, max_examples=50)
def test_means_lie_between_least_and_most(runs: list[list[float]]) -> None:
    summaries = [summarise(RUN, of(*ttfts)) for ttfts in runs]
    found = over_seeds("s", range(len(runs)), summaries)
    by_name = {one.name: one for one in found.spreads}
    assert by_name["TTFT p50"].values == tuple(one.ttft.p50 for one in summaries if one.ttft)
    for one in found.spreads:
        assert one.low - 1e-9 <= one.mean <= one.high + 1e-9
        assert len(one.values) == len(runs)
    assert encode_file(found)


def test_the_table_has_a_column_for_each_scenario() -> None:
    first = over_seeds(
        "first", (1, 2), [summarise(RUN, of(0.1, 0.1)), summarise(RUN, of(0.3, 0.9))]
    )
    second = over_seeds("second", (1,), [summarise(RUN, of(0.2, 0.2))])
    text = printed(seeds_table([first, second]))
    assert "first, 2 seeds" in text
    assert "second, 1 seed" in text
    (within,) = [line for line in text.splitlines() if "within targets" in line]
    assert within.split() == ["within", "targets", "75.0", "%", "(50.0", "%–100", "%)", "100", "%"]
    (ttft,) = [line for line in text.splitlines() if "TTFT p50" in line]
    assert "100 ms" in ttft
    assert ttft.endswith("200 ms")


def test_what_nobody_has_is_left_out() -> None:
    nothing = summarise(RUN, [replace(call(0, 0.1), error=CallError.TIMEOUT, token_at_s=())])
    found = over_seeds("s", (1,), [nothing])
    assert "TTFT p50" not in {one.name for one in found.spreads}
    both = printed(seeds_table([found, over_seeds("t", (1,), [summarise(RUN, of(0.2))])]))
    assert next(line for line in both.splitlines() if "TTFT p50" in line).split()[2] == "–"


def test_searches() -> None:
    def goodput(rate: float) -> Goodput:
        return Goodput(
            rate_per_s=rate,
            fails_at_per_s=None,
            goal=0.9,
            devices=2,
            stopped=StopReason.FOUND,
            probes=(),
        )

    found = goodput_over_seeds("s", (1, 2), [goodput(4.0), goodput(6.0)])
    text = printed(seeds_table([found]))
    assert "5.00/s (4.00/s–6.00/s)" in text
    assert "2.50/s (2.00/s–3.00/s)" in text
