"""Which steps are measured: a grid to fit, and random ones to judge the fit by.

prefill   one or several whole prompts                     1 … 2,048 tokens
chunk     part of a prompt, behind 0 … longest context     nothing is sampled
decode    1 … 64 sequences at several contexts
mixed     decodes and part of a prompt
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, product
from random import Random
from typing import NamedTuple

from .step_work import StepWork

_PREFILLS = tuple(2**power for power in range(12))
_CONTEXTS = (16, 128, 1024)
_PROMPTS = ((4, 32), (8, 16), (16, 32), (4, 128))
_CHUNKS = (4, 32, 128, 512)
_DECODES = (1, 2, 4, 8, 16, 32, 64)
_MIXED_DECODES = (1, 8, 32)
_MIXED_CHUNKS = (32, 128, 448)
_MOST_DRAWS_A_POINT = 50


class StepKind(StrEnum):
    """What a step is made of."""

    PREFILL = "prefill"
    CHUNK = "chunk"
    DECODE = "decode"
    MIXED = "mixed"


class ChunkShape(NamedTuple):
    """`tokens` tokens of a sequence from position `start` on; `sampled`: the last one's logits."""

    start: int
    tokens: int
    sampled: bool


@dataclass(frozen=True, slots=True)
class StepShape:
    """A step without its content: each chunk is a sequence of its own."""

    kind: StepKind
    chunks: tuple[ChunkShape, ...]

    @property
    def work(self) -> StepWork:
        """What the step has to do."""
        work = StepWork()
        for chunk in self.chunks:
            work = work.plus(chunk.start, chunk.tokens, sampled=chunk.sampled)
        return work


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a worker can run at most. `pages`: so many times `page_tokens` tokens fit into its KV
    memory, each in `entry_pages` pages."""

    max_model_len: int
    pages: int
    page_tokens: int
    entry_pages: int = 1
    max_tokens: int = 2048
    max_sequences: int = 64

    def allow(self, shape: StepShape) -> bool:
        """Whether a worker could run the step."""
        ends = [chunk.start + chunk.tokens for chunk in shape.chunks]
        return (
            len(ends) <= self.max_sequences
            and max(ends) <= self.max_model_len
            and sum(chunk.tokens for chunk in shape.chunks) <= self.max_tokens
            and sum(-(-end // self.page_tokens) for end in ends) <= self.pages
        )


def axes(limits: Limits) -> list[StepShape]:
    """The part of the grid that varies one thing at a time; those with less to do first.

    Tokens of a prompt, contexts of one decode, decodes with little context, small parts of prompts.
    """
    longest = limits.max_model_len
    shapes = [_prefill(1, tokens) for tokens in _PREFILLS]
    shapes += [_decode([context]) for context in _contexts(longest)]
    shapes += [_decode([min(longest, _CONTEXTS[0])] * batch) for batch in _DECODES]
    shapes += [_chunk(max(0, end - n), n) for end, n in product(_ends(longest), _CHUNKS[:2])]
    return _ascending(shape for shape in shapes if limits.allow(shape))


def grid(limits: Limits) -> list[StepShape]:
    """The steps to fit, `axes` among them, each once, those with less to do first."""
    longest = limits.max_model_len
    contexts, ends = _contexts(longest), _ends(longest)
    shapes = axes(limits)
    shapes += [_prefill(prompts, tokens) for prompts, tokens in _PROMPTS]
    shapes += [_chunk(max(0, end - n), n) for end, n in product(ends, _CHUNKS[2:])]
    shapes += [_decode([context] * batch) for batch, context in product(_DECODES, contexts)]
    shapes += [
        _mixed([contexts[number % len(contexts)]] * batch, max(0, end - tokens), tokens)
        for number, (batch, tokens) in enumerate(product(_MIXED_DECODES, _MIXED_CHUNKS))
        for end in (ends[number // 2 % 2],)
    ]
    return _ascending(shape for shape in shapes if limits.allow(shape))


def held_out(limits: Limits, points: int, seed: int) -> list[StepShape]:
    """At most `points` random steps, all kinds in turn, none of them in `grid(limits)`.

    Sizes are log-uniform and each decode has a context of its own. The same seed gives the same
    steps. Where memory is small there may be fewer.
    """
    chance = Random(seed)
    known = {shape.chunks for shape in grid(limits)}
    found: dict[tuple[ChunkShape, ...], StepShape] = {}
    kinds = list(StepKind)
    for draw in count():
        if len(found) == points or draw == points * _MOST_DRAWS_A_POINT:
            break
        shape = _random(kinds[len(found) % len(kinds)], limits, chance)
        if limits.allow(shape) and shape.chunks not in known:
            found[shape.chunks] = shape
    return _ascending(found.values())


def _random(kind: StepKind, limits: Limits, chance: Random) -> StepShape:
    longest = limits.max_model_len
    most = min(longest, limits.max_tokens)
    match kind:
        case StepKind.PREFILL:
            prompts = _log_uniform(chance, 1, 8)
            return _prefill(prompts, _log_uniform(chance, 1, max(1, most // prompts)))
        case StepKind.CHUNK:
            tokens = _log_uniform(chance, 2, most)
            return _chunk(chance.randint(0, longest - tokens), tokens)
        case StepKind.DECODE:
            return _decode(_random_contexts(limits, chance))
        case StepKind.MIXED:
            tokens = _log_uniform(chance, 2, min(most, 512))
            return _mixed(
                _random_contexts(limits, chance), chance.randint(0, longest - tokens), tokens
            )


def _contexts(longest: int) -> list[int]:
    return sorted({min(longest, context) for context in (*_CONTEXTS, longest)})


def _ends(longest: int) -> list[int]:
    """Where a part of a prompt ends, so that its start is early, in the middle or late."""
    return [longest // 16, longest // 4, longest]


def _random_contexts(limits: Limits, chance: Random) -> list[int]:
    batch = _log_uniform(chance, 1, limits.max_sequences)
    return [_log_uniform(chance, 1, limits.max_model_len) for _ in range(batch)]


def _log_uniform(chance: Random, low: int, high: int) -> int:
    return min(high, int(low * (high / low + 1 / low) ** chance.random()))


def _prefill(prompts: int, tokens: int) -> StepShape:
    return StepShape(StepKind.PREFILL, (ChunkShape(0, tokens, True),) * prompts)


def _chunk(start: int, tokens: int) -> StepShape:
    return StepShape(StepKind.CHUNK, (ChunkShape(start, tokens, False),))


def _decode(contexts: Iterable[int]) -> StepShape:
    """A context counts the token that is computed."""
    return StepShape(StepKind.DECODE, tuple(ChunkShape(c - 1, 1, True) for c in contexts))


def _mixed(contexts: Iterable[int], start: int, tokens: int) -> StepShape:
    decodes = _decode(contexts).chunks
    return StepShape(StepKind.MIXED, (*decodes, ChunkShape(start, tokens, False)))


def _ascending(shapes: Iterable[StepShape]) -> list[StepShape]:
    """Without doubles, by tokens, then attention."""
    single = {shape.chunks: shape for shape in shapes}.values()
    return sorted(single, key=lambda s: (s.work.tokens, s.work.attention, s.chunks))
