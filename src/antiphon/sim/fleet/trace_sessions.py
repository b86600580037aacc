"""A public trace as tokens, at its full size or any multiple of it.

Equal hash ids are equal tokens behind equal prefixes, as the trace means it. A trace multiplied by
`copies` is as many groups of users who do the same at about the same times, and share nothing.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import merge

from antiphon.core.draws import Draws
from antiphon.types import Seconds, TokenId
from antiphon.workload.traces import TRACE_BLOCK_TOKENS, TraceRow

from .token_sessions import VOCAB_SIZE, TokenSession, TokenTurn, packed

_DIGITS = 6
"""Tokens that spell a hash id: `(VOCAB_SIZE - 1) ** 6` of them can be told apart."""
_SPREAD_S: Seconds = 3.0
"""Copies of a row come within so long after it: the trace's own times are whole seconds."""
_SLO_CLASS = "trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLoad:
    """`speed`: how many times as fast as the trace; `copies`: so many of each row."""

    copies: int = 1
    speed: float = 1.0
    longest_prompt: int = 2**20
    longest_output: int = 2**20
    duration_s: Seconds = float("inf")


def trace_sessions(
    rows: Iterable[TraceRow], load: TraceLoad, *, seed: int
) -> Iterator[TokenSession]:
    """In order of time, from 0 on. Rows that are too long are left out."""
    if load.copies == 1:
        yield from _copy(rows, load, seed, 0)
        return
    kept = list(rows)
    copies = (_copy(kept, load, seed, copy) for copy in range(load.copies))
    yield from merge(*copies, key=lambda one: (one.at_s, one.number))


def _copy(
    rows: Iterable[TraceRow], load: TraceLoad, seed: int, copy: int
) -> Iterator[TokenSession]:
    """Copy 0 comes at the trace's own times."""
    draws = Draws(seed)
    late_s = draws.between(0.0, _SPREAD_S, "copy", copy) if copy else 0.0
    begin: Seconds | None = None
    for place, row in enumerate(rows):
        begin = row.at_s if begin is None else begin
        at_s = (row.at_s - begin + late_s) / load.speed
        if at_s >= load.duration_s:
            return
        if row.input_tokens > load.longest_prompt or row.output_tokens > load.longest_output:
            continue
        number = place * load.copies + copy
        turn = TokenTurn(_prompt(row, number, copy), max(1, row.output_tokens))
        yield TokenSession(at_s, number, (turn,), _SLO_CLASS)


def _prompt(row: TraceRow, number: int, copy: int) -> "tuple[array[TokenId], ...]":
    """Whole blocks for all ids, the last one cut as it is in the trace."""
    if not row.hash_ids:
        return (_spelt(0, 1, number) + _filler()[: max(0, row.input_tokens - _DIGITS - 1)],)
    blocks = [_block(id, copy) for id in row.hash_ids]
    rest = row.input_tokens - (len(blocks) - 1) * TRACE_BLOCK_TOKENS
    blocks[-1] = blocks[-1][: min(TRACE_BLOCK_TOKENS, max(1, rest))]
    return tuple(blocks)


@lru_cache(maxsize=1 << 15)
def _block(hash_id: int, copy: int) -> "array[TokenId]":
    return _spelt(copy, 0, hash_id) + _filler()[: TRACE_BLOCK_TOKENS - _DIGITS - 1]


def _spelt(copy: int, kind: int, number: int) -> "array[TokenId]":
    """Six digits for the number, one for what it numbers."""
    base = VOCAB_SIZE - 1
    number += copy << 32
    digits: list[TokenId] = []
    for _ in range(_DIGITS):
        number, digit = divmod(number, base)
        digits.append(1 + digit)
    return packed((1 + kind, *digits))


@lru_cache(maxsize=1)
def _filler() -> "array[TokenId]":
    return packed(1 + place % (VOCAB_SIZE - 1) for place in range(1 << 18))
