"""What a codec does to a model: sizes of its KV, and what the next tokens lose by it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np
import torch

from antiphon.engine import KvDtype, KvMemory, Model, layout_of
from antiphon.engine.batch import Batch, PageTable, Run
from antiphon.types import TokenId

PAGE_TOKENS = 64
"""Blocks of one page: what is in a block is the same at any page size."""

Codec = Callable[[Sequence[np.ndarray]], float]
"""Puts a context's blocks [1, layers, 2, heads, tokens, width], the first at position 0, through a
codec, in place; returns the bytes that they took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One codec over some contexts. `bits`: an element. The rest is of the tokens that follow.

    `divergence`: mean Kullback-Leibler divergence, in nats, from what the exact cache says; `top1`:
    the share of tokens whose likeliest is the same; perplexities of the text with both.
    `each`: divergence and top-1 of each context.
    """

    name: str
    bits: float
    divergence: float
    top1: float
    exact_perplexity: float
    perplexity: float
    positions: int
    each: tuple[tuple[float, float], ...]


class KvTrial:
    """A model and contexts, each computed once; codecs are tried on copies of their KV.

    `contexts`: token ids of which the last `following` come after what is encoded, and are fed to
    the model one chunk at once. What is not a whole block stays as it is.
    """

    def __init__(
        self,
        model: Model,
        kv_dtype: KvDtype,
        contexts: Sequence[Sequence[TokenId]],
        following: int,
        advance: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._model = model
        self._layout = layout_of(model.spec, PAGE_TOKENS, kv_dtype)
        self._following = following
        self._contexts = [tuple(context) for context in contexts]
        self._caches: list[np.ndarray] = []
        self._exact: list[torch.Tensor] = []
        for number, context in enumerate(self._contexts):
            memory = self._memory(len(context))
            self._compute(memory, context, 0, len(context) - following)
            self._caches.append(memory.elements.copy())
            self._exact.append(self._next(memory, context))
            advance((number + 1) / len(self._contexts))

    def blocks(self, context: int) -> list[np.ndarray]:
        """The whole blocks of a context's KV: copies [1, layers, 2, heads, tokens, width]."""
        cache = self._caches[context].copy()
        return [self._block(cache, number) for number in range(self._whole(context))]

    def run(self, name: str, codec: Codec) -> Trial:
        """Every context through `codec`, and the tokens after it."""
        taken, elements = 0.0, 0
        divergences, same, before, after = [], [], [], []
        for number, context in enumerate(self._contexts):
            memory = self._memory(len(context))
            memory.elements[...] = self._caches[number]
            whole = range(self._whole(number))
            blocks = [self._block(memory.elements, block) for block in whole]
            taken += codec(blocks)
            elements += sum(block.size for block in blocks)
            expected, found = self._exact[number], self._next(memory, context)
            divergences.append((expected.exp() * (expected - found)).sum(1).double())
            same.append((expected.argmax(1) == found.argmax(1)).double())
            truth = torch.tensor(context[-self._following :], device="cpu")[1:, None]
            before.append(-expected[:-1].gather(1, truth).double())
            after.append(-found[:-1].gather(1, truth).double())
        return Trial(
            name=name,
            bits=8 * taken / elements,
            divergence=torch.cat(divergences).mean().item(),
            top1=torch.cat(same).mean().item(),
            exact_perplexity=exp(torch.cat(before).mean().item()),
            perplexity=exp(torch.cat(after).mean().item()),
            positions=len(torch.cat(same)),
            each=tuple(
                (one.mean().item(), two.mean().item())
                for one, two in zip(divergences, same, strict=True)
            ),
        )

    def _whole(self, context: int) -> int:
        return (len(self._contexts[context]) - self._following) // PAGE_TOKENS

    def _block(self, elements: np.ndarray, number: int) -> np.ndarray:
        layout = self._layout
        stride = layout.page_stride
        sides = (1, layout.layers, 2, layout.kv_heads, PAGE_TOKENS, layout.head_width)
        return elements[number * stride : (number + 1) * stride].reshape(sides)

    def _memory(self, tokens: int) -> KvMemory:
        return KvMemory(self._layout, -(-tokens // PAGE_TOKENS))

    def _next(self, memory: KvMemory, context: Sequence[TokenId]) -> torch.Tensor:
        """Log-probabilities [following, vocabulary] after each of the last tokens."""
        first = len(context) - self._following
        logits = self._compute(memory, context, first, len(context), all_rows=True)
        return logits.float().log_softmax(1).clone()

    def _compute(
        self,
        memory: KvMemory,
        context: Sequence[TokenId],
        first: int,
        end: int,
        *,
        all_rows: bool = False,
    ) -> torch.Tensor:
        table = PageTable()
        table.extend(0, range(memory.pages))
        run = Run(tokens=context[first:end], start=first, table=table, sampled=True)
        batch = Batch.of([run], self._layout)
        if all_rows:
            batch = replace(batch, sampled=np.arange(end - first))
        return self._model.forward(batch, memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecSpeed:
    """Elements in a second of CPU time: the fastest of some rounds over all blocks.

    Others that use the machine make it slower all the same: they share its caches.
    """

    encode_per_s: float
    decode_per_s: float


def speed_of(
    encode: Callable[[np.ndarray, int], bytes],
    decode: Callable[[bytes, np.ndarray], None],
    blocks: Sequence[np.ndarray],
    rounds: int = 3,
) -> CodecSpeed:
    """How fast `blocks` of one context are encoded and decoded, by the calling thread."""
    room = np.empty_like(blocks[0])
    elements = sum(block.size for block in blocks)
    encoding, decoding = [], []
    for _ in range(rounds + 1):  # the first compiles, and fills caches
        started = time.thread_time()
        coded = [encode(block, number * PAGE_TOKENS) for number, block in enumerate(blocks)]
        between = time.thread_time()
        for one in coded:
            decode(one, room)
        encoding.append(between - started)
        decoding.append(time.thread_time() - between)
    return CodecSpeed(
        encode_per_s=elements / min(encoding[1:]), decode_per_s=elements / min(decoding[1:])
    )
