"""Public request traces, row by row."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from antiphon.types import Seconds


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace."""

    at_s: Seconds
    """When it came, counted from the trace's first row; rows come in this order."""
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...] = ()
    """One id for each `TRACE_BLOCK_TOKENS` tokens of the prompt (the last may have fewer): equal ids
    are equal tokens after equal beginnings. Empty where the trace has none (Azure's)."""


TRACE_BLOCK_TOKENS = 512
"""Tokens that a hash id of Mooncake's traces stands for."""


def read_mooncake(file: Path) -> Iterator[TraceRow]:
    """Rows of a JSON lines file of Mooncake's release, read as they are asked for.

    Raises `UsageError` that names file, line and field.
    """
    raise NotImplementedError


def read_azure(file: Path) -> Iterator[TraceRow]:
    """Rows of a CSV file of Azure's public data set (2023), read as they are asked for.

    Raises `UsageError` that names file, line and field.
    """
    raise NotImplementedError
