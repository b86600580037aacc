"""A pass that begins before the last layers of what it reads are here: same bits, or nothing."""

import pytest
import torch
from engine_driver import request_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_llama import DTYPES, EVEN_SPEC, model_of

from antiphon.engine.kv_memory import KvDtype, KvMemory, layout_of
from antiphon.engine.torch_engine import TorchEngine
from antiphon.types import Chunk, LayeredEngine, SequenceKey, StepPlan, StepResult

MODELS = {dtype: model_of(EVEN_SPEC, dtype=dtype) for dtype in DTYPES}
LAYERS = EVEN_SPEC.layers
PAGE = 16
PAGES = 40


class Side:
    """An engine and its memory, in which nothing is a number at first."""

    def __init__(self, dtype: str, kv_dtype: KvDtype) -> None:
        self.memory = KvMemory(layout_of(EVEN_SPEC, PAGE, kv_dtype), PAGES)
        self.memory.flat.fill_(float("nan"))
        self.engine = TorchEngine(MODELS[dtype], self.memory)


class Coming:
    """Pages that come from `source`, a group of layers whenever one is waited for."""

    def __init__(
        self, source: KvMemory, target: KvMemory, pages: int, starts: tuple[int, ...], fails: int
    ) -> None:
        self.starts = starts
        self.waited: list[int] = []
        self._memories = source, target
        self._pages = pages
        self._fails = fails

    def bring(self, group: int) -> None:
        source, target = self._memories
        layers = slice(self.starts[group], (*self.starts, LAYERS)[group + 1])
        target.tensor[: self._pages, layers] = source.tensor[: self._pages, layers]

    def wait(self, group: int) -> bool:
        self.waited.append(group)
        if group == self._fails:
            return False
        self.bring(group)
        return True


def plan_of(tokens: list[int], start: int) -> StepPlan:
    request = request_of("r", tokens, temperature=1.0, logprobs=3)
    chunk = Chunk(
        request=request,
        sequence=0,
        tokens=tuple(tokens[start:]),
        start=start,
        new_pages=tuple(range(-(-len(tokens) // PAGE))),
        samples=(0,),
    )
    return StepPlan(number=0, chunks=(chunk,))


def computed(dtype: str, kv_dtype: KvDtype, tokens: list[int]) -> tuple[Side, StepResult]:
    """All of it in one pass."""
    side = Side(dtype, kv_dtype)
    return side, side.engine.forward(plan_of(tokens, 0))


def bits(memory: KvMemory, tokens: int) -> torch.Tensor:
    """All that was written for so many tokens, layer by layer."""
    whole = memory.tensor[: -(-tokens // PAGE)].permute(0, 4, 1, 2, 3, 5).flatten(0, 1)[:tokens]
    return whole.contiguous().view(torch.uint8)


starts = st.sets(st.integers(1, LAYERS - 1)).map(lambda inner: (0, *sorted(inner)))


@pytest.mark.parametrize("kv_dtype", KvDtype)
@pytest.mark.parametrize("dtype", DTYPES)
@settings(deadline=None, max_examples=15)
@given(st.integers(1, 4), st.integers(1, 70), starts, st.integers(0, 99))
def test_the_bits_are_those_of_a_pass_that_had_all_at_once(
    dtype: str, kv_dtype: KvDtype, prefix: int, rest: int, groups: tuple[int, ...], seed: int
) -> None:
    tokens = [
        (seed + 7 * at + at // 5) % EVEN_SPEC.vocab_size for at in range(prefix * PAGE + rest)
    ]
    whole, expected = computed(dtype, kv_dtype, tokens)
    side = Side(dtype, kv_dtype)
    coming = Coming(whole.memory, side.memory, prefix, groups, fails=-1)
    result = side.engine.forward_as_it_comes(plan_of(tokens, prefix * PAGE), coming)
    assert coming.waited == list(range(len(groups)))
    assert (result.samples, result.faults) == (expected.samples, ())
    assert not result.broken_off
    assert torch.equal(bits(side.memory, len(tokens)), bits(whole.memory, len(tokens)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fails", range(LAYERS))
def test_if_layers_do_not_come_it_says_nothing_and_may_be_computed_again(
    dtype: str, fails: int
) -> None:
    tokens = [3 * at % EVEN_SPEC.vocab_size for at in range(2 * PAGE + 9)]
    whole, expected = computed(dtype, KvDtype.FP32, tokens)
    side = Side(dtype, KvDtype.FP32)
    coming = Coming(whole.memory, side.memory, 2, tuple(range(LAYERS)), fails)
    plan = plan_of(tokens, 2 * PAGE)
    broken = side.engine.forward_as_it_comes(plan, coming)
    assert (broken.broken_off, broken.samples, broken.faults) == (True, (), ())
    for group in range(fails, LAYERS):
        coming.bring(group)
    assert side.engine.forward(plan).samples == expected.samples
    side.engine.forward(
        StepPlan(number=1, chunks=(), ended=(SequenceKey(plan.chunks[0].request.id, 0),))
    )
    assert side.engine.held == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_control_an_engine_that_does_not_wait_reads_what_is_no_number(dtype: str) -> None:
    tokens = [3 * at % EVEN_SPEC.vocab_size for at in range(2 * PAGE + 9)]
    side = Side(dtype, KvDtype.FP32)
    result = side.engine.forward(plan_of(tokens, 2 * PAGE))
    assert [fault.request for fault in result.faults] == ["r"]


def test_the_real_engine_is_layered() -> None:
    assert isinstance(Side("int8", KvDtype.FP32).engine, LayeredEngine)
