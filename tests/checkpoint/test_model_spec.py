"""Impossible hyper-parameters are named; possible ones pass."""

from dataclasses import replace

import pytest

from antiphon.checkpoint import (
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ModelSpec,
    YarnScaling,
)
from antiphon.checkpoint.model_spec import find_flaw

NAN, INF = float("nan"), float("inf")


def llama3(**changes: float) -> Llama3Scaling:
    scaling = Llama3Scaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_len=64
    )
    return replace(scaling, **changes)


def yarn(**changes: float) -> YarnScaling:
    scaling = YarnScaling(factor=4.0, original_context_len=64, attention_factor=1.1)
    return replace(scaling, **changes)


LONG = LongRopeScaling(
    short=(1.0,) * 5, long=(2.0,) * 5, original_context_len=64, attention_factor=1.2
)


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        LinearScaling(factor=2.0),
        llama3(),
        yarn(truncate=False),
        LONG,
        FrequencyFactors(factors=(1.0, 1, 2, 8, 8)),
    ],
)
def test_possible(tiny_spec: ModelSpec, scaling: LinearScaling | None) -> None:
    assert find_flaw(replace(tiny_spec, rope_scaling=scaling)) is None


COUNTS = [
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "intermediate",
    "vocab_size",
    "context_len",
]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 2**31, 2**64])
def test_counts(tiny_spec: ModelSpec, name: str, value: int) -> None:
    assert str(find_flaw(replace(tiny_spec, **{name: value}))).startswith(f"{name} is {value}")


@pytest.mark.parametrize(
    "name",
    ["rope_theta", "rms_norm_eps", "embedding_scale", "attention_scale", "window_rope_theta"],
)
@pytest.mark.parametrize("value", [NAN, INF, -INF, 0.0, -1.0])
def test_numbers(tiny_spec: ModelSpec, name: str, value: float) -> None:
    assert str(find_flaw(replace(tiny_spec, **{name: value}))).startswith(f"{name} is {value}")


@pytest.mark.parametrize(
    ("changes", "flaw"),
    [
        ({"kv_heads": 4}, "can't share 4"),
        ({"head_dim": 7}, "needs an even number"),
        ({"eos_token_ids": (2, -1)}, "special token id -1"),
        ({"bos_token_id": 271}, "special token id 271"),
        ({"rope_scaling": LinearScaling(factor=NAN)}, "factor is nan"),
        ({"rope_scaling": llama3(factor=0.0)}, "factor is 0.0"),
        ({"rope_scaling": llama3(low_freq_factor=INF)}, "low_freq_factor is inf"),
        ({"rope_scaling": llama3(low_freq_factor=4.0)}, "must be below high_freq_factor"),
        ({"rope_scaling": llama3(original_context_len=0)}, "original_context_len is 0"),
        ({"rope_scaling": yarn(beta_slow=32.0)}, "beta_slow must be below beta_fast"),
        ({"rope_scaling": yarn(attention_factor=NAN)}, "attention_factor is nan"),
        ({"rope_scaling": replace(LONG, long=(1.0,) * 4)}, "4 RoPE frequency factors"),
        ({"rope_scaling": replace(LONG, short=(1.0,) * 4 + (0.0,))}, "factor is 0.0"),
        ({"rotary_dim": 12}, "turns 12 elements of a head"),
        ({"rotary_dim": 5}, "turns 5 elements of a head"),
        ({"rotary_dim": 0}, "turns 0 elements of a head"),
        ({"windows": (10,)}, "1 attention windows for 2 layers"),
        ({"windows": (10, -1)}, "attention window -1"),
        ({"rope_scaling": FrequencyFactors(factors=(1.0, 1.0))}, "2 RoPE frequency factors"),
        ({"rope_scaling": FrequencyFactors(factors=(1.0, 1, NAN, 1, 1))}, "factor is nan"),
        ({"rope_scaling": FrequencyFactors(factors=(1.0, 1, 1, 1, 0))}, "factor is 0"),
    ],
)
def test_contradictions(tiny_spec: ModelSpec, changes: dict[str, object], flaw: str) -> None:
    assert flaw in str(find_flaw(replace(tiny_spec, **changes)))
