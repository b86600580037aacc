import json
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.workload import TRACE_BLOCK_TOKENS, TraceRow, read_azure, read_mooncake

EXCERPTS = Path(__file__).parent / "excerpts"
WHOLE = Path(__file__).parents[3] / "shared/traces"
AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"

Reader = Callable[[Path], Iterator[TraceRow]]


def test_an_excerpt_of_mooncake() -> None:
    rows = list(read_mooncake(EXCERPTS / "mooncake_conversation.jsonl"))
    assert len(rows) == 24
    assert rows[0] == TraceRow(0.0, 6758, 500, tuple(range(14)))
    assert rows[10].at_s == 3.0
    assert all(a.at_s <= b.at_s for a, b in pairwise(rows))
    assert all(row.hash_ids[0] == 0 for row in rows), "all prompts of this trace begin alike"


def test_an_excerpt_of_azure() -> None:
    rows = list(read_azure(EXCERPTS / "azure_code.csv"))
    assert len(rows) == 12
    assert rows[0] == TraceRow(0.0, 4808, 10)
    assert rows[1].at_s == pytest.approx(0.052)
    assert all(not row.hash_ids for row in rows)


@pytest.mark.parametrize(
    ("name", "reader", "count", "mean_input"),
    [
        ("conversation_trace.jsonl", read_mooncake, 12_031, 12_035),
        ("synthetic_trace.jsonl", read_mooncake, 3_993, 15_325),
        ("AzureLLMInferenceTrace_code.csv", read_azure, 8_819, 2_048),
        ("AzureLLMInferenceTrace_conv.csv", read_azure, 19_366, 1_155),
    ],
)
def test_the_whole_traces_are_valid(name: str, reader: Reader, count: int, mean_input: int) -> None:
    if not (WHOLE / name).exists():
        pytest.skip(f"{name} is not in {WHOLE}: the project carries excerpts only")
    tokens = [row.input_tokens for row in reader(WHOLE / name)]
    assert (len(tokens), round(sum(tokens) / len(tokens))) == (count, mean_input)


def row(**changes: object) -> str:
    fields = {"timestamp": 5, "input_length": 600, "output_length": 1, "hash_ids": [3, 4]}
    return json.dumps({**fields, **changes}) + "\n"


BAD_ROWS = [
    ("{", "row: is not JSON"),
    ("[" * 100_000, "row: is not JSON"),
    ("", "row: is not JSON"),
    ("[]", "row: must be a JSON object"),
    (row(timestamp=None), "timestamp: must be milliseconds"),
    (row(timestamp=True), "timestamp: must be milliseconds"),
    (row(timestamp=-1), "timestamp: must be milliseconds"),
    (row(timestamp=float("nan")), "timestamp: must be milliseconds"),
    (row(timestamp=1e300), "timestamp: must be milliseconds"),
    (row(timestamp=4), "timestamp: is 0.001 s before"),
    (row(input_length=0), "input_length: must be a whole number from 1 to 16777216"),
    (row(input_length=600.5), "input_length: must be a whole number"),
    (row(input_length=10**12), "input_length: must be a whole number"),
    (row(input_length="600"), "input_length: must be a whole number"),
    (row(output_length=-1), "output_length: must be a whole number from 0 to 16777216"),
    (row(output_length=None), "output_length: must be a whole number"),
    (row(hash_ids=None), "hash_ids: must be a list"),
    (row(hash_ids=[3]), "hash_ids: has 1 ids, but 600 input tokens are 2 blocks of 512"),
    (row(hash_ids=[3, -4]), "hash_ids: must be a whole number"),
    (row(hash_ids=[3, "4"]), "hash_ids: must be a whole number"),
    (row(hash_ids=[3, 10**30]), "hash_ids: must be a whole number"),
]


@pytest.mark.parametrize(("line", "problem"), BAD_ROWS)
def test_a_bad_row_of_mooncake_is_named(tmp_path: Path, line: str, problem: str) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(row() + (line.removesuffix("\n") + "\n"))
    with pytest.raises(UsageError) as raised:
        list(read_mooncake(file))
    assert str(raised.value).startswith(f"{file}, line 2: {problem}")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("2023-11-16 18:17:03,1", "row: must have 3 fields, not 2"),
        ("2023-11-16 18:17:03,1,2,3", "row: must have 3 fields, not 4"),
        ("", "row: must have 3 fields"),
        ("yesterday,1,2", "TIMESTAMP: Invalid isoformat"),
        ("2023-11-16 18:17:02,1,2", "timestamp: is 1 s before"),
        (
            "2023-11-16 18:17:03,0,2",
            "ContextTokens: must be a whole number from 1 to 16777216, not 0",
        ),
        ("2023-11-16 18:17:03,1.5,2", "ContextTokens: must be a whole number"),
        ("2023-11-16 18:17:03,1,-2", "GeneratedTokens: must be a whole number"),
        ("2023-11-16 18:17:03,1,²", "GeneratedTokens: must be a whole number"),
        ("2023-11-16 18:17:03,1," + "9" * 5000, "GeneratedTokens: must be a whole number"),
    ],
)
def test_a_bad_row_of_azure_is_named(tmp_path: Path, line: str, problem: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(f"{AZURE_HEADER}2023-11-16 18:17:03,1,2\n{line}\n")
    with pytest.raises(UsageError) as raised:
        list(read_azure(file))
    assert str(raised.value).startswith(f"{file}, line 3: {problem}")


@pytest.mark.parametrize("reader", [read_azure, read_mooncake])
def test_a_file_that_is_no_trace_is_named(tmp_path: Path, reader: Reader) -> None:
    with pytest.raises(UsageError, match="absent: can't be read: No such file"):
        list(reader(tmp_path / "absent"))
    with pytest.raises(UsageError, match="can't be read"):
        list(reader(tmp_path))
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="binary, after line 0: not UTF-8"):
        list(reader(binary))
    endless = tmp_path / "endless"
    endless.write_text("x" * (2**22 + 1))
    with pytest.raises(UsageError, match="endless, line 1: longer than"):
        list(reader(endless))


def test_azure_needs_its_header(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    for text in ("", "2023-11-16 18:17:03,1,2\n"):
        file.write_text(text)
        with pytest.raises(UsageError, match="line 1: the header must be 'TIMESTAMP"):
            list(read_azure(file))


def test_rows_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(row() * 3 + "broken\n")
    assert len(list(islice(read_mooncake(file), 3))) == 3


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(1, 5000), st.integers(0, 500)), max_size=8
    )
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, facts: list[tuple[int, int, int]]
) -> None:
    facts.sort()
    file = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    ids = [tuple(range(-(-tokens // TRACE_BLOCK_TOKENS))) for _, tokens, _ in facts]
    file.write_text(
        "".join(
            row(timestamp=at, input_length=tokens, output_length=output, hash_ids=one)
            for (at, tokens, output), one in zip(facts, ids, strict=True)
        )
    )
    first = facts[0][0] if facts else 0
    assert list(read_mooncake(file)) == [
        TraceRow(at / 1000 - first / 1000, tokens, output, one)
        for (at, tokens, output), one in zip(facts, ids, strict=True)
    ]
