"""A trace as tokens: what shares hash ids shares tokens, and copies share nothing."""

from collections.abc import Iterator
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.sim.fleet import TokenSession, TraceLoad, trace_sessions
from antiphon.sim.fleet.token_sessions import EOS, VOCAB_SIZE
from antiphon.workload import TraceRow
from antiphon.workload.traces import TRACE_BLOCK_TOKENS


def row(at_s: float, ids: tuple[int, ...], input_tokens: int, output_tokens: int = 10) -> TraceRow:
    return TraceRow(at_s=at_s, input_tokens=input_tokens, output_tokens=output_tokens, hash_ids=ids)


def prompt(session: TokenSession) -> tuple[int, ...]:
    (turn,) = session.turns
    return tuple(chain.from_iterable(turn.parts))  # type: ignore[arg-type]


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


@given(
    ids=st.lists(st.integers(0, 10**6), min_size=1, max_size=6, unique=True),
    other=st.lists(st.integers(0, 10**6), min_size=1, max_size=6, unique=True),
    last=st.integers(20, TRACE_BLOCK_TOKENS),
)
@settings(deadline=None, max_examples=60)
def test_prompts_share_exactly_the_blocks_that_their_ids_share(
    ids: list[int], other: list[int], last: int
) -> None:
    def length(of: list[int]) -> int:
        return (len(of) - 1) * TRACE_BLOCK_TOKENS + last

    rows = [row(0, tuple(ids), length(ids)), row(1, tuple(other), length(other))]
    one, two = (prompt(session) for session in trace_sessions(rows, TraceLoad(), seed=1))
    assert (len(one), len(two)) == (length(ids), length(other))
    assert all(EOS < token < VOCAB_SIZE for token in one + two)
    blocks = shared(tuple(ids), tuple(other))
    whole = blocks * TRACE_BLOCK_TOKENS
    assert whole - TRACE_BLOCK_TOKENS < shared(one, two) < whole + 8 or one == two


def test_rows_without_ids_share_nothing() -> None:
    one, two = trace_sessions([row(0, (), 100), row(1, (), 100)], TraceLoad(), seed=1)
    assert shared(prompt(one), prompt(two)) < 8


def test_copies_come_soon_after_each_other_and_share_nothing() -> None:
    rows = [row(10, (1, 2), 1000), row(40, (1, 3), 1000)]
    sessions = list(trace_sessions(rows, TraceLoad(copies=3), seed=1))
    assert len(sessions) == 6
    assert [one.at_s for one in sessions] == sorted(one.at_s for one in sessions)
    assert len({one.number for one in sessions}) == 6
    first, second = sessions[:3], sessions[3:]
    assert all(one.at_s < 3.0 for one in first)
    assert all(30 <= one.at_s < 33.0 for one in second)
    prompts = [prompt(one) for one in first]
    assert all(shared(a, b) < 8 for a in prompts for b in prompts if a is not b)
    # Within a copy rows share as they do in the trace.
    by_copy = {one.number % 3: prompt(one) for one in first}
    for one in second:
        assert shared(by_copy[one.number % 3], prompt(one)) >= TRACE_BLOCK_TOKENS


def test_a_trace_twice_as_fast_takes_half_the_time() -> None:
    def at(speed: float) -> Iterator[float]:
        rows = [row(5, (1,), 50), row(9, (2,), 50), row(25, (3,), 50)]
        return (one.at_s for one in trace_sessions(rows, TraceLoad(speed=speed), seed=1))

    assert list(at(1.0)) == [0, 4, 20]
    assert list(at(2.0)) == [0, 2, 10]


def test_rows_that_are_too_long_or_too_late_are_left_out() -> None:
    rows = [row(0, (1,), 50), row(1, (2, 3), 600), row(2, (4,), 50, 99), row(50, (5,), 50)]
    load = TraceLoad(longest_prompt=512, longest_output=50, duration_s=10)
    assert [one.number for one in trace_sessions(rows, load, seed=1)] == [0]
