"""Public request traces: which requests came when, how long they were, and which began alike.

    Mooncake (FAST 2025), JSON lines    {"timestamp": 27482, "input_length": 6955,
                                         "output_length": 52, "hash_ids": [46, 47, 2353]}
    Azure (Splitwise, ISCA 2024), CSV   TIMESTAMP,ContextTokens,GeneratedTokens

Rows are read as they are asked for. Whatever is not as it should be is a `UsageError` that names
the file, the line and the field.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import cast

from antiphon.core.number_text import number_text
from antiphon.errors import UsageError
from antiphon.types import Seconds

from .file_lines import RowError, file_lines, json_row, whole_number

TRACE_BLOCK_TOKENS = 512
"""Tokens that a hash id of Mooncake's traces stands for."""
_MAX_TOKENS = 2**24
_AZURE_EPOCH = datetime(2023, 1, 1)
"""Near the data, so that a float of seconds keeps microseconds."""
_AZURE_FIELDS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace."""

    at_s: Seconds
    """When it came, counted from the trace's first row; rows come in this order."""
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...] = ()
    """One id for each `TRACE_BLOCK_TOKENS` tokens of the prompt; the last may have fewer. Equal ids
    are equal tokens after equal beginnings. Empty where the trace has none (Azure's)."""


def read_trace(file: Path) -> Iterator[TraceRow]:
    """Rows of a file of either kind, told apart by its first line.

    Raises `UsageError`, once rows are asked for, if it is neither.
    """
    first = next(file_lines(file, "request trace"), "").lstrip()
    if first.startswith("{"):
        yield from read_mooncake(file)
    elif first.startswith(_AZURE_FIELDS[0]):
        yield from read_azure(file)
    else:
        raise UsageError(
            f"{file}, line 1: neither Mooncake's JSON lines ({{\"timestamp\": …}}) nor Azure's CSV "
            f"({','.join(_AZURE_FIELDS)}), but {first[:40]!r}"
            if first
            else f"{file}: has no rows: give Mooncake's JSON lines or Azure's CSV"
        )


def read_mooncake(file: Path) -> Iterator[TraceRow]:
    """Rows of a JSON lines file of Mooncake's release."""
    return _in_order(file, file_lines(file, "request trace"), _mooncake_row)


def read_azure(file: Path) -> Iterator[TraceRow]:
    """Rows of a CSV file of Azure's public data set (2023)."""
    lines = file_lines(file, "request trace")
    header = next(lines, "")
    if header.split(",") != list(_AZURE_FIELDS):
        raise UsageError(
            f"{file}, line 1: the header must be {','.join(_AZURE_FIELDS)!r}, not {header[:80]!r}"
        )
    return _in_order(file, lines, _azure_row, first_line=2)


def _in_order(
    file: Path,
    lines: Iterator[str],
    parse: Callable[[str], TraceRow],
    *,
    first_line: int = 1,
) -> Iterator[TraceRow]:
    """Parsed rows, with times from the first one on."""
    began_at, last = None, 0.0
    for number, line in enumerate(lines, first_line):
        try:
            row = parse(line)
            began_at = row.at_s if began_at is None else began_at
            at_s = row.at_s - began_at
            if at_s < last:
                raise RowError(
                    "timestamp",
                    f"is {number_text(last - at_s)} s before that of an earlier row",
                )
        except RowError as problem:
            raise UsageError(f"{file}, line {number}: {problem}") from None
        last = at_s
        yield TraceRow(at_s, row.input_tokens, row.output_tokens, row.hash_ids)


def _mooncake_row(line: str) -> TraceRow:
    row = json_row(line)
    at_ms = row.get("timestamp")
    if not isinstance(at_ms, int | float) or isinstance(at_ms, bool) or not 0 <= at_ms < 2**53:
        raise RowError("timestamp", f"must be milliseconds from 0 on, not {at_ms!r:.40}")
    input_tokens = whole_number("input_length", row.get("input_length"), low=1, high=_MAX_TOKENS)
    output_tokens = whole_number("output_length", row.get("output_length"), low=0, high=_MAX_TOKENS)
    hash_ids = row.get("hash_ids")
    if not isinstance(hash_ids, list):
        raise RowError("hash_ids", f"must be a list, not {hash_ids!r:.40}")
    ids = cast("list[object]", hash_ids)
    blocks = -(-input_tokens // TRACE_BLOCK_TOKENS)
    if len(ids) != blocks:
        raise RowError(
            "hash_ids",
            f"has {len(ids)} ids, but {input_tokens} input tokens are {blocks} blocks of "
            f"{TRACE_BLOCK_TOKENS}",
        )
    return TraceRow(
        at_s=at_ms / 1000,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        hash_ids=tuple(whole_number("hash_ids", one, low=0, high=2**63) for one in ids),
    )


def _azure_row(line: str) -> TraceRow:
    cells = line.split(",")
    if len(cells) != len(_AZURE_FIELDS):
        raise RowError("row", f"must have {len(_AZURE_FIELDS)} fields, not {len(cells)}")
    try:
        at = datetime.fromisoformat(cells[0])
    except ValueError as problem:
        raise RowError("TIMESTAMP", str(problem)) from problem
    return TraceRow(
        at_s=(at.replace(tzinfo=None) - _AZURE_EPOCH).total_seconds(),
        input_tokens=whole_number("ContextTokens", _number(cells[1]), low=1, high=_MAX_TOKENS),
        output_tokens=whole_number("GeneratedTokens", _number(cells[2]), low=0, high=_MAX_TOKENS),
    )


def _number(cell: str) -> object:
    return int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 20 else cell
