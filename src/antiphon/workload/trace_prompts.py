"""Prompts for the rows of a trace: what shares `hash_ids` there shares text here.

A row tells of each block of its prompt only a hash id: equal ids are equal blocks behind equal
prefixes. Here an id becomes a run of words, a function of (id, seed) alone:

    hash ids   0            17           18
    words      time way …   water find … call long …        the last run may be cut short
               └ spell 0    └ spell 17   └ spell 18

The first `ID_WORDS` words of a run spell its id, so two prompts part within that many words of
where their ids do. Every word is one token in common vocabularies (a leading space included), so
a run has as many tokens as words, give or take where prompts begin and end.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from antiphon.core.draws import Draws
from antiphon.types import Seconds

from .asks import WORDS, Ask
from .prompt_text import words
from .traces import TRACE_BLOCK_TOKENS, TraceRow

ID_WORDS = 4
MOST_HASH_ID = len(WORDS) ** ID_WORDS - 1
"""The largest that `ID_WORDS` words can spell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceScale:
    """How a trace of a large cluster is made small enough for this machine.

    `block_tokens` stand for the `trace_block_tokens` of each hash id; lengths of prompts shrink
    with them, lengths of outputs by `output_share`, and both have at least what makes sense.
    Rows whose prompt would be longer than `max_prompt_tokens` are left out.
    """

    block_tokens: int = 32
    trace_block_tokens: int = TRACE_BLOCK_TOKENS
    output_share: float = 1 / 16
    max_output_tokens: int = 64
    max_prompt_tokens: int = 4096

    def __post_init__(self) -> None:
        if self.block_tokens < ID_WORDS or self.trace_block_tokens < 1:
            raise ValueError(
                f"block_tokens is {self.block_tokens}, and {ID_WORDS} words spell an id"
            )
        if self.max_output_tokens < 1 or not self.output_share >= 0:
            raise ValueError("there must be room for at least one token of output")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAsk:
    """A row as something that can be sent. `prompt_words`: its length, before any template."""

    at_s: Seconds
    ask: Ask
    prompt_words: int
    hash_ids: tuple[int, ...]


def block_words(hash_id: int, seed: int, count: int) -> list[str]:
    """The first `count` words of the run that stands for this id. Longer runs begin alike.

    Raises `ValueError` for an id that `ID_WORDS` words can't spell.
    """
    if not 0 <= hash_id <= MOST_HASH_ID:
        raise ValueError(f"hash id {hash_id}: must be from 0 to {MOST_HASH_ID}")
    spelt = _spelt(hash_id, seed)[:count]
    return spelt + words(count - len(spelt), seed, "words", hash_id)


def prompt_lengths(row: TraceRow, scale: TraceScale) -> list[int]:
    """Words for each hash id of a row: whole blocks, and the last one cut as it is in the trace.

    The last has at least `ID_WORDS`, so that it never looks like another's. A row without ids is
    one run of its own.
    """
    if not row.hash_ids:
        scaled = row.input_tokens * scale.block_tokens // scale.trace_block_tokens
        return [max(ID_WORDS, scaled)]
    whole = len(row.hash_ids) - 1
    rest = row.input_tokens - whole * scale.trace_block_tokens
    last = -(-rest * scale.block_tokens // scale.trace_block_tokens)
    return [scale.block_tokens] * whole + [min(scale.block_tokens, max(ID_WORDS, last))]


def trace_asks(
    rows: Iterable[TraceRow], scale: TraceScale, *, seed: int, limit: int | None = None
) -> Iterator[TraceAsk]:
    """Greedy asks for the rows that fit, at the trace's own times, the first one at 0.

    The first `limit` of them; their numbers count from 0. Prompts of rows without hash ids share
    nothing. The same arguments give the same asks on every machine.
    """
    begin = None
    for number, row in enumerate(islice(fitting(rows, scale), limit)):
        begin = row.at_s if begin is None else begin
        lengths = prompt_lengths(row, scale)
        text = (
            _prompt(row.hash_ids, lengths, seed)
            if row.hash_ids
            else " ".join(words(lengths[0], seed, "row", number))
        )
        yield TraceAsk(
            at_s=row.at_s - begin,
            ask=_ask(number, text, _output(row, scale), seed),
            prompt_words=sum(lengths),
            hash_ids=tuple(row.hash_ids),
        )


def fitting(rows: Iterable[TraceRow], scale: TraceScale) -> Iterator[TraceRow]:
    """The rows whose prompts are within `max_prompt_tokens`."""
    return (row for row in rows if sum(prompt_lengths(row, scale)) <= scale.max_prompt_tokens)


def thinned(rows: Iterable[TraceRow], share: float, seed: int) -> Iterator[TraceRow]:
    """About `share` of the rows: whole conversations, so that what they reuse stays with them.

    Rows belong together if they begin with the same two ids: many a trace begins with one for all.
    """
    draws = Draws(seed)
    for row in rows:
        if draws.fraction("conversation", *map(str, row.hash_ids[:2])) < share:
            yield row


def at_rate(asks: Sequence[TraceAsk], rate_per_s: float) -> list[TraceAsk]:
    """The same asks, sped up or slowed down so that so many come a second on average.

    Asks that all come at once keep their time.
    """
    if not rate_per_s > 0:
        raise ValueError(f"the rate must be above 0 requests a second, but is {rate_per_s}")
    if not asks or not asks[-1].at_s:
        return list(asks)
    factor = len(asks) / (asks[-1].at_s * rate_per_s)
    return [replace(one, at_s=one.at_s * factor) for one in asks]


def _spelt(hash_id: int, seed: int) -> list[str]:
    """An id in words as digits, the most significant last; every seed spells in its own way."""
    draws, words = Draws(seed), []
    for place in range(ID_WORDS):
        hash_id, digit = divmod(hash_id, len(WORDS))
        shift = draws.below(len(WORDS), "spelling", place)
        words.append(WORDS[(digit + shift) % len(WORDS)])
    return words


def _prompt(hash_ids: Sequence[int], lengths: Sequence[int], seed: int) -> str:
    return " ".join(
        word
        for hash_id, length in zip(hash_ids, lengths, strict=True)
        for word in block_words(hash_id, seed, length)
    )


def _output(row: TraceRow, scale: TraceScale) -> int:
    return min(scale.max_output_tokens, max(1, round(row.output_tokens * scale.output_share)))


def _ask(number: int, text: str, max_tokens: int, seed: int) -> Ask:
    return Ask(number=number, text=text, max_tokens=max_tokens, temperature=0.0, seed=seed % 2**31)
