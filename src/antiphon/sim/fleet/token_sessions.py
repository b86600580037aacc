"""What virtual users send: sessions of a workload as token ids, with answers of known tokens.

    workload ── words ──► token_sessions ──► TokenSession: turns of prompt parts and answer lengths
    trace ── hash ids ──► trace_sessions ──┘

A virtual cluster has no tokenizer and needs none: a word is a token (`WORDS`), and a trace's rows
skip words altogether. What shares a beginning as text shares it as tokens.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from antiphon.core.draws import Draws
from antiphon.types import Seconds, TokenId
from antiphon.workload import AnswerOf, TimedSession, Turn
from antiphon.workload.asks import WORDS

EOS: TokenId = 0
VOCAB_SIZE = 1024
_FIRST_WORD = 1
_NUMBERS = {word: number for number, word in enumerate(WORDS, start=_FIRST_WORD)}
_UNKNOWN = _FIRST_WORD + len(WORDS)
"""A user's own text may hold any words: they are told apart by a hash of their letters."""
_NOISE = 1 << 16

TokenPart: TypeAlias = Sequence[TokenId] | AnswerOf


def packed(tokens: Iterable[TokenId] = ()) -> "array[TokenId]":
    """Tokens of a prompt, 4 bytes each, as the names of blocks hash them (`core.kv.BlockKeys`):
    what is long and read in whole blocks is copied as bytes, not token by token."""
    return array("I", tokens)


@dataclass(frozen=True, slots=True)
class TokenTurn:
    """One call: see `workload.Turn`. `parts` in order make the prompt."""

    parts: tuple[TokenPart, ...]
    output_tokens: int
    after: tuple[int, ...] = ()
    pause_s: Seconds = 0.0
    model: str = ""


@dataclass(frozen=True, slots=True)
class TokenSession:
    """See `workload.TimedSession`. `tenant` and `priority`: whose requests, and of which class."""

    at_s: Seconds
    number: int
    turns: tuple[TokenTurn, ...]
    slo_class: str = ""
    tenant: str = ""
    priority: int = 0


def token_sessions(sessions: Iterable[TimedSession]) -> Iterator[TokenSession]:
    """The same sessions as tokens, one by one."""
    for one in sessions:
        session = one.session
        yield TokenSession(
            one.at_s,
            session.number,
            tuple(map(_turn, session.turns)),
            session.slo_class,
        )


def id_range(_tokens: Sequence[TokenId]) -> tuple[TokenId, TokenId]:
    """Between which ids all tokens of users are.

    They are made here, so that no worker has to look at each of them: for `Parts.id_range` of a
    scheduler.
    """
    return EOS, VOCAB_SIZE - 1


def answer_tokens(number: int, turn: int, tokens: int) -> tuple[TokenId, ...]:
    """What a call is answered with: a function of its place, and never the end mark."""
    begin = (number * 7919 + turn * 104729) % _NOISE
    noise = _noise()
    end = begin + tokens
    if end <= _NOISE:
        return noise[begin:end]
    whole, rest = divmod(end - _NOISE, _NOISE)
    return noise[begin:] + noise * whole + noise[:rest]


@lru_cache(maxsize=1)
def _noise() -> tuple[TokenId, ...]:
    draws = Draws(0)
    return tuple(1 + draws.below(VOCAB_SIZE - 1, "noise", place) for place in range(_NOISE))


def _turn(turn: Turn) -> TokenTurn:
    parts: list[TokenPart] = []
    for message in turn.history:
        for part in message.parts:
            parts.append(part if isinstance(part, AnswerOf) else _tokens(part))
    parts.append(_tokens(turn.ask.text))
    return TokenTurn(
        tuple(parts),
        turn.ask.max_tokens,
        turn.after,
        turn.pause_s,
        turn.ask.model or "",
    )


def _tokens(text: str) -> "array[TokenId]":
    numbers = _NUMBERS
    return packed(
        found if (found := numbers.get(word)) is not None else _hashed(word)
        for word in text.split()
    )


def _hashed(word: str) -> TokenId:
    number = 0
    for byte in word.encode():
        number = (number * 131 + byte) % (VOCAB_SIZE - _UNKNOWN)
    return _UNKNOWN + number
