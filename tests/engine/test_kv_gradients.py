"""Gradients of what comes after a prompt with respect to its KV: the engine's KV, true slopes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_llama import EVEN_SPEC, ODD_SPEC, Bench, model_from, tensors_of

from antiphon.checkpoint import ModelSpec
from antiphon.engine.kv_gradients import KvGradients
from antiphon.engine.reference import rotate
from antiphon.engine.rope import rotation_table
from antiphon.errors import UsageError

PROMPT, FOLLOWING = list(range(5, 45)), list(range(60, 72))


@pytest.mark.parametrize("spec", [ODD_SPEC, EVEN_SPEC], ids=["odd", "even"])
def test_its_kv_is_the_engines_before_rotation(spec: ModelSpec) -> None:
    sample = KvGradients(spec, tensors_of(spec)).sample(PROMPT, FOLLOWING, seed=1)
    bench = Bench(model_from(spec, tensors_of(spec), "fp32"), page_tokens=16, pages=4)
    lane = bench.lane(PROMPT)
    bench.step([(lane, len(PROMPT))])
    kv = bench.kv(lane)[..., : spec.head_dim]  # [tokens, layers, 2, heads, head_dim]
    cosines, sines = (table[: len(PROMPT)] for table in rotation_table(spec, 256))
    ours = torch.from_numpy(sample.values).permute(3, 0, 1, 2, 4)
    for layer in range(spec.layers):
        keys = rotate(ours[:, layer, 0], cosines, sines)
        assert torch.allclose(keys, kv[:, layer, 0], atol=1e-4)
        assert torch.allclose(ours[:, layer, 1], kv[:, layer, 1], atol=1e-4)


def test_slopes_are_what_small_changes_do() -> None:
    spec = EVEN_SPEC
    weights = {name: tensor.double() for name, tensor in tensors_of(spec).items()}
    model = KvGradients(spec, weights)
    model._cosines, model._sines = model._cosines.double(), model._sines.double()
    sample = model.sample(PROMPT, FOLLOWING, seed=3)
    following = torch.tensor(FOLLOWING)

    def scores(values: np.ndarray) -> torch.Tensor:
        pairs = [
            tuple(torch.from_numpy(side).transpose(0, 1) for side in layer) for layer in values
        ]
        with torch.no_grad():
            return model._scores(model._forward(following, pairs)[0])  # type: ignore[arg-type]

    before = scores(sample.values)
    drawn = torch.multinomial(before.exp(), 1, generator=torch.Generator().manual_seed(3))
    chance = np.random.default_rng(5)
    for _ in range(4):
        change = 1e-5 * chance.normal(size=sample.values.shape)
        found = scores(sample.values + change).gather(1, drawn).sum()
        expected = float((sample.gradients * change).sum())
        assert float(found - before.gather(1, drawn).sum()) == pytest.approx(expected, rel=1e-3)


def test_a_context_that_is_too_long_is_refused() -> None:
    model = KvGradients(ODD_SPEC, tensors_of(ODD_SPEC))
    with pytest.raises(UsageError, match="context of 256"):
        model.sample([1] * 250, [1] * 7, seed=0)


@pytest.mark.parametrize(
    ("quirk", "named"),
    [
        ({"qk_norm": True}, "norms of queries and keys"),
        ({"windows": (8, 0, 8)}, "attention windows"),
        ({"rotary_dim": 8}, "heads that turn in part"),
        ({"embedding_scale": 2.0}, "scaled embeddings"),
    ],
)
def test_a_family_that_computes_otherwise_is_refused(quirk: dict, named: str) -> None:
    """Else its profile would be of another model's KV."""
    with pytest.raises(UsageError, match=named):
        KvGradients(replace(EVEN_SPEC, **quirk), {})
