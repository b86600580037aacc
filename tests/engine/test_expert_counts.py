"""What each expert computed is counted once, whoever computed it and beside whom."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_llama import DTYPES, Bench, model_from, model_of, random_tokens, tensors_of

from antiphon.checkpoint import Experts
from antiphon.engine import quantized_llama
from antiphon.engine.expert_counts import ExpertCounts
from antiphon.engine.model import Model
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.testing.tiny_models import TINY_SPEC
from antiphon.types import MOST_EXPERT_COUNTS

SPARSE = ("mixtral", "qwen3_moe", "dots1")
BOTH = pytest.mark.parametrize("dtype", DTYPES)
LENGTH = 120


def table(model: Model) -> np.ndarray:
    """Counts [sparse layers, experts]."""
    said = model.expert_counts.said()
    assert said is not None and len(said.totals) == len(said.layers) * said.experts
    return np.array(said.totals).reshape(len(said.layers), said.experts)


def experts_of(model: Model) -> Experts:
    assert model.spec.experts is not None
    return model.spec.experts


MODELS = {
    (family, dtype): model_of(FAMILY_SPECS[family], dtype=dtype)
    for family, dtype in product(SPARSE, DTYPES)
}


@BOTH
@pytest.mark.parametrize("family", SPARSE)
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_counts_add_up_and_depend_on_no_chunking_neighbour_or_thread(
    family: str, dtype: str, data: st.DataObject
) -> None:
    """Rows × experts of a row in each layer; in the last one of an int8 model, sampled rows. Whose
    counts they are is what each token by itself says, in the layers that compute all rows."""
    model = MODELS[family, dtype]
    experts, last = experts_of(model), dtype == "int8"
    prompts = [
        random_tokens(model.spec, data.draw(st.integers(1, LENGTH), "length"), seed)
        for seed in range(data.draw(st.integers(1, 3), "prompts"))
    ]
    model.expert_counts.forget()
    for prompt in prompts:
        bench = Bench(model, 16, LENGTH // 16 + 1)
        lane = bench.lane(prompt)
        for _ in prompt:
            bench.step([(lane, 1)])
    alone = table(model)
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantized_llama, "_WORTH_SHARING", 0)
        try:
            torch.set_num_threads(data.draw(st.integers(1, 3), "threads"))
            model.expert_counts.forget()
            bench = Bench(model, 16, len(prompts) * (LENGTH // 16 + 1))
            lanes = [bench.lane(prompt) for prompt in prompts]
            sampled = 0
            while left := [lane for lane in lanes if lane.done < len(lane.tokens)]:
                sampled += len(left)
                bench.step([(lane, data.draw(st.integers(1, LENGTH), "chunk")) for lane in left])
        finally:
            torch.set_num_threads(before)
    found, rows = table(model), sum(map(len, prompts))
    full = found[:-1] if last else found
    assert (full.sum(axis=1) == rows * experts.active).all()
    assert (full == alone[: len(full)]).all()
    assert (found <= np.maximum(rows, sampled)).all()
    if last:
        assert found[-1].sum() == sampled * experts.active


@BOTH
@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe"])
def test_experts_are_counted_under_their_own_numbers(family: str, dtype: str) -> None:
    """Routers that prefer nobody take the first ones: all tokens, and nobody else any."""
    spec = FAMILY_SPECS[family]
    tensors = tensors_of(spec)
    routers = [name for name in tensors if name.endswith(".mlp.gate.weight")]
    assert len(routers) == spec.layers
    for name in routers:
        tensors[name].zero_()
    model = model_from(spec, tensors, dtype)
    bench = Bench(model, 16, 2)
    lane = bench.lane(random_tokens(spec, 20, 3))
    for count in (19, 1):
        bench.step([(lane, count)])
    active = experts_of(model).active
    found = table(model)
    assert (found[:-1, :active] == 20).all() and (found[:, active:] == 0).all()
    assert (found[-1, :active] == (2 if dtype == "int8" else 20)).all()


@BOTH
def test_a_dense_model_carries_nothing(dtype: str) -> None:
    model = model_of(TINY_SPEC, dtype=dtype)
    bench = Bench(model, 16, 1)
    bench.step([(bench.lane([1, 2, 3]), 3)])
    assert model.expert_counts.said() is None
    assert sum(one.size for one in model.expert_counts.of_threads(1)) == 0


@pytest.mark.parametrize(("layers", "whole"), [(32, True), (33, False)])
def test_too_many_counts_are_told_as_sums_over_layers(layers: int, whole: bool) -> None:
    experts = Experts(count=128, active=2, intermediate=1, dense_layers=(0,))
    counts = ExpertCounts(replace(TINY_SPEC, layers=layers + 1, experts=experts))
    chosen = np.array([[0, 5], [5, 127]])
    for layer in range(1, layers + 1):
        counts.add(layer, chosen)
    said = counts.said()
    assert said is not None and said.experts == 128
    assert said.layers == (tuple(range(1, layers + 1)) if whole else ())
    assert len(said.totals) <= MOST_EXPERT_COUNTS
    factor = 1 if whole else layers
    assert [said.totals[n] for n in (0, 1, 5, 127)] == [factor, 0, 2 * factor, factor]
    assert sum(said.totals) == 4 * layers
