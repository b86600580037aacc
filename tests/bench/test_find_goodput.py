"""Searches against a server: what runs they ask for, and what is left when they are broken off."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from antiphon.bench import find_goodput, find_slo_scale
from antiphon.core.goodput import (
    Goodput,
    GoodputSearch,
    RunAt,
    ScaleRules,
    SearchRules,
    Slos,
    SloScale,
    SloScaleSearch,
    StopReason,
)
from antiphon.errors import PeerError
from antiphon.types import CallError, CallRecord, Seconds, Slo

SLOS: Slos = (("", Slo(ttft_s=5.0, tpot_s=0.1)),)
RULES = SearchRules(start_per_s=0.2, run_s=2000.0, longest_run_s=2000.0)
WARMUP_S = 50.0


class Till:
    """A queue in virtual time: a call takes a second, one after another. It counts its runs."""

    def __init__(self, *, cold_s: Seconds = 0.0) -> None:
        self.asked: list[RunAt] = []
        self._chance = random.Random(1)
        self._cold_s = cold_s

    async def __call__(self, rate_per_s: float, duration_s: Seconds) -> Sequence[CallRecord]:
        self.asked.append(RunAt(rate_per_s, duration_s))
        records, due, free_at = list[CallRecord](), 0.0, 0.0
        while (due := due + self._chance.expovariate(rate_per_s)) < duration_s:
            free_at = max(free_at, due) + 1.0
            slow = 100.0 if due < self._cold_s else 0.0
            records.append(served(len(records), due, free_at + slow))
        return records


def served(number: int, due: Seconds, first: Seconds) -> CallRecord:
    stamps = (first, first + 0.05, first + 0.1)
    return CallRecord(
        number=number,
        session=number,
        turn=0,
        due_at_s=due,
        sent_at_s=due,
        token_at_s=stamps,
        ended_at_s=stamps[-1],
        output_tokens=3,
    )


def failed(error: CallError, message: str = "") -> CallRecord:
    return CallRecord(
        number=0, session=0, turn=0, due_at_s=60.0, sent_at_s=60.0, ended_at_s=60.0,
        error=error, message=message,
    )  # fmt: skip


async def test_finds_the_knee_of_a_till_from_the_records_of_calls() -> None:
    # Waiting at most 4 s, at 90 %: 0.7577 calls a second (Erlang's formula).
    found = await find_goodput(GoodputSearch(RULES), Till(), SLOS, warmup_s=WARMUP_S)
    assert found.stopped is StopReason.FOUND
    assert found.rate_per_s == pytest.approx(0.7577, rel=0.06)


async def test_the_warmup_is_run_in_addition_and_counts_for_nothing() -> None:
    till = Till(cold_s=WARMUP_S)
    found = await find_goodput(GoodputSearch(RULES), till, SLOS, warmup_s=WARMUP_S)
    assert {run.duration_s for run in till.asked} == {2000.0 + WARMUP_S}
    assert found.rate_per_s == pytest.approx(0.7577, rel=0.06)


async def test_tells_how_far_it_is() -> None:
    till, told = Till(), list[tuple[Goodput, RunAt | None]]()
    found = await find_goodput(
        GoodputSearch(RULES),
        till,
        SLOS,
        on_progress=lambda so_far, ahead: told.append((so_far, ahead)),
    )
    assert [ahead for _so_far, ahead in told] == [*till.asked, None]
    assert told[0][0].probes == ()
    assert told[-1][0] == found


async def test_when_cancelled_the_search_has_what_was_found_by_then() -> None:
    till, search, in_third = Till(), GoodputSearch(RULES), asyncio.Event()

    async def measure(rate_per_s: float, duration_s: Seconds) -> Sequence[CallRecord]:
        if len(till.asked) == 2:
            in_third.set()
            await asyncio.Event().wait()
        return await till(rate_per_s, duration_s)

    task = asyncio.create_task(find_goodput(search, measure, SLOS))
    await in_third.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert search.result().stopped is StopReason.UNFINISHED
    assert sum(probe.runs for probe in search.result().probes) == 2


async def test_a_server_that_is_gone_is_no_goodput_of_0() -> None:
    till, search = Till(), GoodputSearch(RULES)

    async def measure(rate_per_s: float, duration_s: Seconds) -> Sequence[CallRecord]:
        if len(till.asked) == 1:
            gone = failed(CallError.UNREACHABLE, "connection refused")
            return [gone, failed(CallError.ABANDONED), failed(CallError.UNSENT)] * 10
        return await till(rate_per_s, duration_s)

    with pytest.raises(PeerError, match="none of 30 calls reached the server: connection refused"):
        await find_goodput(search, measure, SLOS)
    assert search.result().rate_per_s == 0.2


async def test_a_server_that_refuses_all_has_a_goodput_of_0() -> None:
    async def measure(rate_per_s: float, duration_s: Seconds) -> Sequence[CallRecord]:
        return [failed(CallError.OVERLOADED)] * 200

    found = await find_goodput(GoodputSearch(RULES), measure, SLOS, warmup_s=WARMUP_S)
    assert (found.rate_per_s, found.stopped) == (0.0, StopReason.ALL_FAIL)


async def test_runs_that_are_all_warmup_end_the_search() -> None:
    async def measure(rate_per_s: float, duration_s: Seconds) -> Sequence[CallRecord]:
        return [served(0, 1.0, 2.0)]

    found = await find_goodput(GoodputSearch(RULES), measure, SLOS, warmup_s=WARMUP_S)
    assert found.stopped is StopReason.NO_CALLS


async def test_finds_how_tight_targets_may_be() -> None:
    till, told = Till(cold_s=WARMUP_S), list[tuple[SloScale, RunAt | None]]()
    search = SloScaleSearch(ScaleRules(rate_per_s=0.7577, run_s=10_000.0, most_runs=4), SLOS)
    found = await find_slo_scale(
        search,
        till,
        warmup_s=WARMUP_S,
        on_progress=lambda so_far, ahead: told.append((so_far, ahead)),
    )
    assert found.tightest.value == pytest.approx(1.0, rel=0.15)
    assert [ahead for _so_far, ahead in told] == [*[RunAt(0.7577, 10_000.0)] * found.runs, None]
    assert {run.duration_s for run in till.asked} == {10_000.0 + WARMUP_S}


async def test_targets_of_a_server_that_is_gone_are_not_found() -> None:
    async def measure(rate_per_s: float, duration_s: Seconds) -> Sequence[CallRecord]:
        return [failed(CallError.UNREACHABLE)]

    with pytest.raises(PeerError, match="is it up"):
        await find_slo_scale(SloScaleSearch(ScaleRules(rate_per_s=1.0), SLOS), measure)
