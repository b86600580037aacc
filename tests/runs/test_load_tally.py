"""What is shown while a load goes on."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.bench.watcher import shown
from antiphon.runs import LoadTally
from antiphon.types import CallError, CallRecord

STARTED_AT = 1000.0
"""On the clock that is handed in."""


def record(number: int, error: CallError | None = None, ttft_s: float = 0.1) -> CallRecord:
    return CallRecord(
        number=number,
        session=number,
        turn=0,
        due_at_s=float(number),
        sent_at_s=float(number),
        token_at_s=() if error else (number + ttft_s,),
        ended_at_s=number + 1.0,
        output_tokens=0 if error else 1,
        error=error,
    )


def tally(met: bool = True) -> LoadTally:
    return LoadTally(lambda one: met and one.error is None, duration_s=60.0, warmup_s=2.0)


def test_before_the_first_request() -> None:
    assert tally().line(STARTED_AT) == "the first request is to come"


def test_a_run_from_its_warm_up_to_its_last_answer() -> None:
    shown_now = tally()
    for number in range(5):
        shown_now.sent(number + 0.001, STARTED_AT + number + 0.001)
    shown_now.ended(record(0))
    assert shown_now.line(STARTED_AT + 1) == (
        "1 of 60 s · 5 sent · 4 open · 1 ok · 0 failed · 5.00/s · warming up"
        " · TTFT p50 100 ms, p99 100 ms"
    )
    shown_now.ended(record(2))
    shown_now.ended(record(3, CallError.TIMEOUT))
    line = shown_now.line(STARTED_AT + 10)
    assert "10 of 60 s · 5 sent · 2 open · 2 ok · 1 failed · 0.50/s · 50% within targets" in line
    late = shown_now.line(STARTED_AT + 75)
    assert late.startswith("waiting for the last answers, 15 s · 5 sent · 2 open")
    assert "0.08/s" in late


ENDS = st.lists(st.none() | st.sampled_from(CallError), max_size=60)


@given(ENDS, st.integers(0, 20))
@settings(deadline=None, max_examples=100)
def test_what_was_sent_is_open_or_has_ended(ends: list[CallError | None], still_open: int) -> None:
    shown_now = tally()
    never_sent = (CallError.ABANDONED, CallError.UNSENT)
    sent = still_open + sum(error not in never_sent for error in ends)
    for number in range(sent):
        shown_now.sent(float(number), STARTED_AT + number)
    for number, error in enumerate(ends):
        shown_now.ended(record(number, error))
    line = shown_now.line(STARTED_AT + 100)
    if sent:
        failed = sum(error is not None for error in ends)
        assert (
            f"{sent} sent · {still_open} open · {len(ends) - failed} ok · {failed} failed" in line
        )


class Screen:
    def __init__(self, is_live: bool) -> None:
        self.is_live = is_live
        self.lines: list[str] = []
        self.seen = asyncio.Event()

    def say(self, line: str) -> None:
        self.lines.append(line)
        if len(self.lines) >= 2:
            self.seen.set()

    def log(self, line: str) -> None:
        raise AssertionError("nothing has happened")


async def test_a_terminal_is_redrawn_until_the_end() -> None:
    screen = Screen(is_live=True)
    async with shown(screen, lambda: "now"):
        await asyncio.wait_for(screen.seen.wait(), 60)
    drawn = len(screen.lines)
    await asyncio.sleep(0)
    assert screen.lines == ["now"] * drawn


async def test_a_line_that_can_not_be_made_is_not_passed_over() -> None:
    screen = Screen(is_live=True)

    def broken() -> str:
        screen.seen.set()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with shown(screen, broken):
            await asyncio.wait_for(screen.seen.wait(), 60)
