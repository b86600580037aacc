"""Rotary frequencies against transformers, and tables that do not depend on their length."""

from dataclasses import replace

import pytest
import torch
from tiny_llama import EVEN_SPEC
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from antiphon.checkpoint import (
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    RopeScaling,
    YarnScaling,
)
from antiphon.checkpoint.hf_config import hf_config
from antiphon.engine.rope import frequencies, rotation_table

LLAMA3 = Llama3Scaling(
    factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_len=8192
)


YARN = YarnScaling(factor=4.0, original_context_len=1024, attention_factor=1.1386)


@pytest.mark.parametrize(
    "scaling",
    [None, LinearScaling(factor=3.0), LLAMA3, YARN, replace(YARN, truncate=False, beta_fast=8.0)],
)
@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_angles_match_transformers(scaling: RopeScaling | None, head_dim: int) -> None:
    spec = replace(
        EVEN_SPEC, head_dim=head_dim, rope_theta=500000.0, rope_scaling=scaling, context_len=4096
    )
    oracle = LlamaRotaryEmbedding(LlamaConfig(**hf_config(spec)))
    cosines, sines = oracle(torch.zeros(1), torch.arange(spec.context_len)[None])
    found = rotation_table(spec, spec.context_len)
    half = head_dim // 2
    torch.testing.assert_close(found[0], cosines[0, :, :half], atol=1e-6, rtol=0)
    torch.testing.assert_close(found[1], sines[0, :, :half], atol=1e-6, rtol=0)


def test_frequency_factors_are_llama3_scaling_worked_out() -> None:
    plain = frequencies(EVEN_SPEC)
    scaled = frequencies(replace(EVEN_SPEC, rope_scaling=LLAMA3))
    factors = FrequencyFactors(factors=tuple((plain / scaled).tolist()))
    found = frequencies(replace(EVEN_SPEC, rope_scaling=factors))
    torch.testing.assert_close(found, scaled)
    assert not torch.equal(plain, scaled)


def test_a_positions_values_do_not_depend_on_the_length_of_the_table() -> None:
    long = rotation_table(EVEN_SPEC, 1000)
    for length in (1, 2, 3, 17, 999):
        for part, whole in zip(rotation_table(EVEN_SPEC, length), long, strict=True):
            assert torch.equal(part, whole[:length])
