"""How far a model's predictions are from those of a reference, on the same text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np
import torch

from antiphon.engine import KvDtype, KvMemory, Model, layout_of
from antiphon.engine.batch import Batch, PageTable, Run


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


def compare(
    reference: Model,
    candidate: Model,
    texts: Iterable[Sequence[int]],
    *,
    kv_dtype: KvDtype = KvDtype.FP32,
) -> Agreement:
    """Each text (2 to `context_len` token ids) goes through both models as one prompt.

    `kv_dtype` is what the candidate keeps keys and values as; the reference keeps fp32.
    """
    divergence, same, reference_loss, loss = [], [], [], []
    for text in texts:
        tokens = torch.tensor(text)
        expected = log_probabilities(reference, text)[:-1]
        found = log_probabilities(candidate, text, kv_dtype)[:-1]
        divergence.append((expected.exp() * (expected - found)).sum(1))
        same.append(expected.argmax(1) == found.argmax(1))
        reference_loss.append(-expected.gather(1, tokens[1:, None])[:, 0])
        loss.append(-found.gather(1, tokens[1:, None])[:, 0])
    before, after = torch.cat(reference_loss).double(), torch.cat(loss).double()
    change = (after - before).mean().item()
    return Agreement(
        positions=len(before),
        mean_kl_nats=torch.cat(divergence).double().mean().item(),
        top1=torch.cat(same).double().mean().item(),
        reference_perplexity=exp(before.mean().item()),
        perplexity=exp(after.mean().item()),
        perplexity_change=exp(change) - 1,
        perplexity_error=((after - before).std() / len(before) ** 0.5).item(),
    )


def log_probabilities(
    model: Model, text: Sequence[int], kv_dtype: KvDtype = KvDtype.FP32
) -> torch.Tensor:
    """Of every next token at every position: float32 [len(text), vocabulary]."""
    layout = layout_of(model.spec, page_tokens=64, kv_dtype=kv_dtype)
    pages = -(-len(text) // 64)
    table = PageTable()
    table.extend(0, range(pages))
    batch = Batch.of([Run(tokens=text, start=0, table=table, sampled=True)], layout)
    batch = replace(batch, sampled=np.arange(len(text)))
    return model.forward(batch, KvMemory(layout, pages)).log_softmax(1)
