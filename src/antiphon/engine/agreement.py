"""How far a model's predictions are from those of a reference, on the same text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import exp, sqrt

import numpy as np
import torch

from .batch import Batch, PageTable, Run
from .device import DeviceKv, DeviceLlama
from .kv_memory import KvDtype, KvMemory, layout_of
from .model import Model

_ROWS = 128
"""Positions that are compared at once: what is computed beside the logits stays small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Over all positions but the last of each text."""

    positions: int
    mean_kl_nats: float
    """Kullback-Leibler divergence of the candidate from the reference."""
    top1: float
    """Share of positions at which both find the same token likeliest."""
    reference_perplexity: float
    perplexity: float
    perplexity_change: float
    """Relative to the reference; its standard error is beside it."""
    perplexity_error: float


@dataclass(slots=True)
class _Sums:
    """What was found so far, one number a position."""

    kl: list[torch.Tensor] = field(default_factory=list)
    same: list[torch.Tensor] = field(default_factory=list)
    reference_loss: list[torch.Tensor] = field(default_factory=list)
    loss: list[torch.Tensor] = field(default_factory=list)


def compare(
    reference: Model[KvMemory],
    candidate: Model[KvMemory] | DeviceLlama,
    texts: Sequence[Sequence[int]],
    *,
    kv_dtype: KvDtype = KvDtype.FP32,
    advance: Callable[[float], None] = lambda share: None,
) -> Agreement:
    """Each text (2 to `context_len` token ids) goes through both models, wherever these are, as one
    prompt.

    `kv_dtype` is what the candidate keeps keys and values as; the reference keeps fp32. `advance`
    gets the share of the texts that is done. Both models' logits of one text are in memory.
    """
    sums = _Sums()
    for number, text in enumerate(texts, 1):
        tokens = torch.tensor(text, device="cpu")
        expected, found = _logits(reference, text), _logits(candidate, text, kv_dtype)
        for first in range(0, len(text) - 1, _ROWS):
            rows = slice(first, min(first + _ROWS, len(text) - 1))
            _add(sums, expected[rows], found[rows], tokens[rows.start + 1 : rows.stop + 1])
        advance(number / len(texts))
    return _agreement(sums)


def log_probabilities(
    model: Model[KvMemory] | DeviceLlama,
    text: Sequence[int],
    kv_dtype: KvDtype = KvDtype.FP32,
) -> torch.Tensor:
    """Of every next token at every position: float32 [len(text), vocabulary]."""
    return _logits(model, text, kv_dtype).log_softmax(1)


def _logits(
    model: Model[KvMemory] | DeviceLlama,
    text: Sequence[int],
    kv_dtype: KvDtype = KvDtype.FP32,
) -> torch.Tensor:
    """New memory: the next call of the same model doesn't change it."""
    layout = layout_of(model.spec, page_tokens=64, kv_dtype=kv_dtype)
    pages = -(-len(text) // layout.page_tokens)
    table = PageTable()
    table.extend(0, range(pages))
    batch = Batch.of([Run(tokens=text, start=0, table=table, sampled=True)], layout)
    batch = replace(batch, sampled=np.arange(len(text)))
    if isinstance(model, DeviceLlama):
        return model.forward(batch, DeviceKv(layout, pages, model.device)).clone()
    return model.forward(batch, KvMemory(layout, pages)).clone()


def _add(sums: _Sums, expected: torch.Tensor, found: torch.Tensor, following: torch.Tensor) -> None:
    """Count positions: logits [n, vocabulary] of both, and the tokens [n] that came next."""
    expected, found = expected.log_softmax(1), found.log_softmax(1)
    sums.kl.append((expected.exp() * (expected - found)).sum(1))
    sums.same.append(expected.argmax(1) == found.argmax(1))
    sums.reference_loss.append(-expected.gather(1, following[:, None])[:, 0])
    sums.loss.append(-found.gather(1, following[:, None])[:, 0])


def _agreement(sums: _Sums) -> Agreement:
    before, after = torch.cat(sums.reference_loss).double(), torch.cat(sums.loss).double()
    changes = after - before
    spread = changes.std().item() if len(changes) > 1 else 0.0
    return Agreement(
        positions=len(before),
        mean_kl_nats=torch.cat(sums.kl).double().mean().item(),
        top1=torch.cat(sums.same).double().mean().item(),
        reference_perplexity=exp(before.mean().item()),
        perplexity=exp(after.mean().item()),
        perplexity_change=exp(changes.mean().item()) - 1,
        perplexity_error=spread / sqrt(len(before)),
    )
