"""Tiny random Llama models in memory, the oracle's copy of them, and a bench to run tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from antiphon.checkpoint import ModelSpec
from antiphon.checkpoint.hf_config import hf_config
from antiphon.engine.attention import Geometry, geometry_of
from antiphon.engine.batch import Batch, PageTable, Run
from antiphon.engine.kv_memory import KvDtype, KvMemory, layout_of
from antiphon.engine.llama import LlamaModel
from antiphon.engine.model import Model
from antiphon.engine.quantized_llama import QuantizedLlama
from antiphon.engine.quantized_weights import QuantizedWeights
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors

DTYPES = ("fp32", "int8")

ODD_SPEC = TINY_SPEC
"""No width is a whole number of vectors."""
EVEN_SPEC = replace(
    TINY_SPEC, hidden=64, heads=4, kv_heads=2, head_dim=64, intermediate=128, tied_embeddings=True
)
"""All widths are whole vectors, heads as wide as a real model's."""


def tensors_of(spec: ModelSpec, seed: int = 1) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in random_tensors(spec, seed).items()}


def model_of(spec: ModelSpec, seed: int = 1, dtype: str = "fp32") -> Model:
    return model_from(spec, tensors_of(spec, seed), dtype)


def model_from(spec: ModelSpec, tensors: dict[str, torch.Tensor], dtype: str) -> Model:
    if dtype == "int8":
        return QuantizedLlama(spec, QuantizedWeights.take(spec, tensors))
    return LlamaModel(spec, tensors)


def oracle_of(spec: ModelSpec, tensors: dict[str, torch.Tensor]) -> LlamaForCausalLM:
    """transformers' model with the same weights; float32, eager."""
    oracle = LlamaForCausalLM(LlamaConfig(**hf_config(spec))).eval()
    missing, unexpected = oracle.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert set(missing) <= ({"lm_head.weight"} if spec.tied_embeddings else set())
    oracle.tie_weights()
    return oracle


@dataclass(slots=True)
class Lane:
    """One sequence on its way through the model."""

    tokens: list[int]
    table: PageTable
    done: int = 0


class Bench:
    """Feeds sequences to a model in any interleaving, and reads back what it computed."""

    def __init__(
        self,
        model: Model,
        page_tokens: int,
        pages: int,
        seed: int = 0,
        kv_dtype: KvDtype = KvDtype.FP32,
    ) -> None:
        self.model = model
        self.memory = KvMemory(layout_of(model.spec, page_tokens, kv_dtype), pages)
        # What nobody wrote must not be read: let it show.
        self.memory.flat.fill_(float("nan"))
        self._free = np.random.default_rng(seed).permutation(pages).tolist()

    @property
    def geometry(self) -> Geometry:
        return geometry_of(self.model.spec, self.memory.layout)

    def lane(self, tokens: list[int]) -> Lane:
        table = PageTable()
        wanted = -(-len(tokens) // self.memory.layout.page_tokens)
        table.extend(0, [self._free.pop() for _ in range(wanted)])
        return Lane(tokens, table)

    def step(self, work: list[tuple[Lane, int]]) -> torch.Tensor:
        """Compute the next `count` tokens of each lane; logits of each lane's last one."""
        runs = []
        for lane, count in work:
            tokens = lane.tokens[lane.done : lane.done + count]
            runs.append(Run(tokens=tokens, start=lane.done, table=lane.table, sampled=True))
            lane.done += len(tokens)
        return self.model.forward(Batch.of(runs, self.memory.layout), self.memory).clone()

    def kv(self, lane: Lane) -> torch.Tensor:
        """Keys and values by position: [computed, layers, 2, kv_heads, head_width]."""
        places = torch.arange(lane.done)
        size = self.memory.layout.page_tokens
        pages = torch.from_numpy(lane.table.pages)[places // size]
        return self.memory.tensor[pages, :, :, :, places % size]


def random_tokens(spec: ModelSpec, count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(spec.vocab_size, (count,), generator=generator).tolist()


class Alone:
    """The reference: one sequence by itself, token after token, in pages of 16."""

    def __init__(self, model: Model, seed: int, kv_dtype: KvDtype, count: int) -> None:
        self.tokens = random_tokens(model.spec, count, seed)
        bench = Bench(model, 16, pages=-(-count // 16), kv_dtype=kv_dtype)
        lane = bench.lane(self.tokens)
        self.logits = torch.cat([bench.step([(lane, 1)]) for _ in range(count)])
        self.kv = bench.kv(lane)


class Computed(Protocol):
    """One sequence and what it computes to, at every position."""

    tokens: list[int]
    logits: torch.Tensor
    kv: torch.Tensor


def same_in_any_steps(
    bench: Bench, ones: Sequence[Computed], lengths: list[int], data: st.DataObject, most: int
) -> None:
    """Law: whatever chunks of whichever sequences share a step, bits are those of each alone."""
    lanes = [bench.lane(one.tokens[:length]) for one, length in zip(ones, lengths, strict=True)]
    sizes = st.one_of(st.integers(1, 20), st.integers(20, most))
    while any(lane.done < len(lane.tokens) for lane in lanes):
        ready = [n for n, lane in enumerate(lanes) if lane.done < len(lane.tokens)]
        chosen = data.draw(st.lists(st.sampled_from(ready), min_size=1, unique=True), "step")
        logits = bench.step([(lanes[n], data.draw(sizes, "chunk")) for n in chosen])
        for row, n in zip(logits, chosen, strict=True):
            assert torch.equal(row, ones[n].logits[lanes[n].done - 1])
    for lane, one in zip(lanes, ones, strict=True):
        assert torch.equal(bench.kv(lane), one.kv[: lane.done])
