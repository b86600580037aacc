"""The catalogue of models has as many parameters, and keeps as much KV, as is published."""

import pytest

from antiphon.errors import UsageError
from antiphon.perf.hardware import MODELS, shape_of

BILLION = 1e9

PUBLISHED = {
    "opt-13b": (13, "Zhang et al. 2022, arXiv:2205.01068, table 1"),
    "opt-66b": (66, "Zhang et al. 2022, arXiv:2205.01068, table 1"),
    "opt-175b": (175, "Zhang et al. 2022, arXiv:2205.01068, table 1"),
    "llama-3-8b": (8.03, "model size shown at hf.co/meta-llama/Llama-3.1-8B: 8.03B"),
    "llama-3-70b": (70.6, "model size shown at hf.co/meta-llama/Llama-3.1-70B: 70.6B"),
    "qwen3-0.6b": (0.6, "model card, hf.co/Qwen/Qwen3-0.6B: 0.6B"),
    "qwen3-8b": (8.2, "model card, hf.co/Qwen/Qwen3-8B: 8.2B"),
    "qwen3-32b": (32.8, "model card, hf.co/Qwen/Qwen3-32B: 32.8B"),
    "qwen3-30b-a3b": (30.5, "model card, hf.co/Qwen/Qwen3-30B-A3B: 30.5B"),
    "qwen3-235b-a22b": (235, "model card, hf.co/Qwen/Qwen3-235B-A22B: 235B"),
    "mixtral-8x7b": (46.7, "Jiang et al. 2024, arXiv:2401.04088: 47B; mistral.ai: 46.7B"),
    "deepseek-v3": (671, "DeepSeek-V3 technical report, arXiv:2412.19437: 671B"),
    "deepseek-r1": (671, "model card, hf.co/deepseek-ai/DeepSeek-R1: 671B"),
    "smollm2-135m": (0.135, "model card, hf.co/HuggingFaceTB/SmolLM2-135M: 135M"),
}

ACTIVE = {
    "qwen3-30b-a3b": (3.3, "model card: 3.3B activated"),
    "qwen3-235b-a22b": (22, "model card: 22B activated"),
    "mixtral-8x7b": (12.9, "mistral.ai: 12.9B a token"),
    "deepseek-v3": (37, "technical report: 37B activated"),
    "deepseek-r1": (37, "model card: 37B activated"),
}

KV_BYTES_IN_16_BITS = {
    "opt-13b": 2 * 40 * 5120 * 2,  # the paper of vLLM says 800 KB (Kwon et al. 2023, §3)
    "llama-3-8b": 128 * 1024,
    "llama-3-70b": 320 * 1024,
    "qwen3-8b": 144 * 1024,
    "deepseek-v3": 61 * 576 * 2,
    "deepseek-r1": 70_272,
    "smollm2-135m": 23_040,
}


def test_every_model_is_checked() -> None:
    assert [model.name for model in MODELS] == list(PUBLISHED)
    assert {model.name for model in MODELS if model.experts} == set(ACTIVE)


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_a_model_has_as_many_parameters_as_is_published(
    name: str, published: tuple[float, str]
) -> None:
    assert shape_of(name).parameters == pytest.approx(published[0] * BILLION, rel=0.02)


@pytest.mark.parametrize(("name", "published"), ACTIVE.items())
def test_a_token_meets_as_many_as_is_published(name: str, published: tuple[float, str]) -> None:
    assert shape_of(name).active_parameters == pytest.approx(published[0] * BILLION, rel=0.02)


@pytest.mark.parametrize("name", sorted(set(PUBLISHED) - set(ACTIVE)))
def test_without_experts_a_token_meets_all(name: str) -> None:
    model = shape_of(name)
    assert model.active_parameters == model.parameters


@pytest.mark.parametrize(("name", "expected"), KV_BYTES_IN_16_BITS.items())
def test_a_token_is_kept_in_as_many_bytes_as_is_published(name: str, expected: int) -> None:
    model = shape_of(name)
    assert model.layers * model.kv_values_per_token * 2 == expected


def test_latent_attention_keeps_576_numbers_a_layer() -> None:
    assert shape_of("deepseek-v3").kv_values_per_token == 576


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_model_says_where_its_numbers_are_from(model: object) -> None:
    assert getattr(model, "source", "").startswith(("hf.co/", "arXiv:"))


def test_a_name_that_is_not_known_gets_the_nearest_and_all() -> None:
    with pytest.raises(UsageError, match=r"'llama-3-8B' is not in .* did you mean 'llama-3-8b'\?"):
        shape_of("llama-3-8B")
    with pytest.raises(UsageError, match=r"Known are opt-13b, .*smollm2-135m"):
        shape_of("gpt-5")
