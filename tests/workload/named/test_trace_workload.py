import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise, takewhile
from pathlib import Path

import pytest

from antiphon.errors import UsageError
from antiphon.workload import (
    OwnTimes,
    Poisson,
    Session,
    Trace,
    calls_per_session,
    has_own_times,
    parse_workload,
    read_trace,
    timed,
)

EXCERPTS = Path(__file__).parents[1] / "excerpts"
MOONCAKE = EXCERPTS / "mooncake_conversation.jsonl"
AZURE = EXCERPTS / "azure_code.csv"
WHOLE = Path(__file__).parents[4] / "shared/traces"


def words(session: Session) -> list[str]:
    return session.turns[0].ask.text.split()


def common(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = zip(one, other, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def test_shared_hash_ids_are_shared_text() -> None:
    trace = Trace(file=MOONCAKE, block=32)
    rows = list(read_trace(MOONCAKE))
    sessions = list(trace.sessions(1))
    assert len(sessions) == len(rows)
    for (row, session), (other_row, other) in pairwise(zip(rows, sessions, strict=True)):
        ids = common(row.hash_ids, other_row.hash_ids)
        assert ids >= 1, "all prompts of this trace begin alike"
        assert 32 * ids <= common(words(session), words(other)) < 32 * ids + 4


def test_lengths_are_scaled() -> None:
    for row, session in zip(
        read_trace(MOONCAKE),
        Trace(file=MOONCAKE, block=64, output_share=0.1).sessions(1),
        strict=True,
    ):
        assert len(words(session)) == pytest.approx(row.input_tokens / 8, abs=4)
        assert session.turns[0].ask.max_tokens == min(64, max(1, round(row.output_tokens * 0.1)))


def test_rows_that_do_not_fit_are_left_out() -> None:
    fitting = list(parse_workload(f"trace:{MOONCAKE},max_context=600").sessions(1))
    assert 0 < len(fitting) < 24
    assert all(len(words(one)) + 64 <= 600 - 56 for one in fitting)
    with pytest.raises(UsageError, match=r"no row fits max_context=130: raise it, keep more .* 32"):
        list(parse_workload(f"trace:{MOONCAKE},max_context=130").sessions(1))


def test_azure_is_known_by_its_header_and_shares_nothing() -> None:
    trace = Trace(file=AZURE, block=512, output_share=1.0, max_context=16384)
    sessions = list(trace.sessions(1))
    for row, session in zip(read_trace(AZURE), sessions, strict=True):
        assert len(words(session)) == row.input_tokens
        assert session.turns[0].ask.max_tokens == row.output_tokens
    assert len({tuple(words(session)[:4]) for session in sessions}) == len(sessions)


def test_own_times_are_kept_sped_up_or_scaled_to_a_rate() -> None:
    trace, rows = Trace(file=AZURE), list(read_trace(AZURE))
    assert has_own_times(trace)
    for arrivals, factor in (
        (OwnTimes(), 1),
        (OwnTimes(speed=4), 4),
        (OwnTimes(rate_per_s=2), 2 * rows[-1].at_s / len(rows)),
    ):
        times = [one.at_s for one in timed(trace, arrivals, seed=1)]
        assert times == pytest.approx([row.at_s / factor for row in rows])


def test_other_arrivals_take_its_rows_in_order() -> None:
    trace = Trace(file=AZURE)
    poisson = list(timed(trace, Poisson(2), seed=1))
    assert [one.session for one in poisson] == list(trace.sessions(1))
    assert calls_per_session(trace, 1) == 1


def test_a_share_keeps_whole_conversations() -> None:
    """All of this excerpt's rows that begin with the same two ids stay or go together."""
    rows = list(read_trace(MOONCAKE))
    kept = list(Trace(file=MOONCAKE, share=0.5).sessions(3))
    assert 0 < len(kept) < len(rows)


def test_a_trace_whose_rows_come_at_once_has_no_rate(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    row = {"timestamp": 7, "input_length": 5, "output_length": 1, "hash_ids": [1]}
    file.write_text(f"{json.dumps(row)}\n" * 3)
    trace = Trace(file=file)
    assert trace.own_rate_per_s(1) is None
    assert [one.at_s for one in timed(trace, OwnTimes(rate_per_s=5), seed=1)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "has no rows: give Mooncake's JSON lines or Azure's CSV"),
        ("hello\n", "line 1: neither Mooncake's JSON lines"),
        ("\0\0\0", "line 1: neither Mooncake's JSON lines"),
        ("{}\n", "line 1: timestamp: must be milliseconds"),
        ("TIMESTAMP;ContextTokens\n", "line 1: the header must be"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n",
            "has no rows: give a trace of at least one request",
        ),
        (
            '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [999999999]}\n',
            "hash_ids: 999999999 is over 228886640: number them from 0 on",
        ),
    ],
)
def test_a_file_that_is_no_trace_is_named(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "trace"
    file.write_text(content)
    with pytest.raises(UsageError) as raised:
        list(Trace(file=file).sessions(1))
    assert str(raised.value).startswith(str(file))
    assert problem in str(raised.value)


def test_a_row_that_is_wrong_is_found_before_the_first_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(MOONCAKE.read_text() + '{"timestamp": 0}\n')
    for arrivals in (Poisson(1), OwnTimes()):
        with pytest.raises(UsageError, match=r"line 25: input_length"):
            timed(Trace(file=file), arrivals, seed=1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("trace", "trace: file is missing: give file="),
        ("trace:f,block=3", "trace: block must be from 4 to 512, not 3"),
        ("trace:f,block=x", "trace: block must be a whole number from 4 to 512"),
        ("trace:f,output_share=-1", "trace: output_share must be from 0 to 1, not -1"),
        ("trace:f,share=0", "trace: share must be above 0 and up to 1, not 0"),
        ("trace:f,max_output=5000,max_context=2048", "max_context is 2048, but its shortest calls"),
        ("trace:f,g", '"g" must be an option such as key=value'),
    ],
)
def test_options_that_are_wrong_are_named(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_workload(text)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("name", "count", "rate"),
    [
        ("conversation_trace.jsonl", 12_000, 3.4),
        ("synthetic_trace.jsonl", 3_993, 3.9),
        ("AzureLLMInferenceTrace_code.csv", 8_819, 2.57),
        ("AzureLLMInferenceTrace_conv.csv", 19_366, 5.5),
    ],
)
def test_the_whole_traces_can_be_sent(name: str, count: int, rate: float) -> None:
    if not (WHOLE / name).exists():
        pytest.skip(f"{name} is not in {WHOLE}: the project carries excerpts only")
    trace = Trace(file=WHOLE / name)
    own_rate = trace.own_rate_per_s(1)
    assert own_rate == pytest.approx(rate, rel=0.02)
    first = list(islice(timed(trace, OwnTimes(), seed=1), 200))
    assert len(first) == 200
    assert all(a.at_s <= b.at_s for a, b in pairwise(first))


def test_a_trace_says_how_far_it_is_scaled_down(tmp_path: Path) -> None:
    trace = Trace(file=tmp_path / "trace.jsonl")
    assert "outputs to 0.0625 of their lengths" in (trace.scaled_down or "")
    assert "prompts to 0.5," in (replace(trace, block=256).scaled_down or "")
    assert replace(trace, block=512, output_share=1.0, max_context=2**15).scaled_down is None
