import math
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.validation import check_sampling, resolve_sampling
from antiphon.errors import ClientError
from antiphon.types import SamplingParams

VOCAB = 1000
FIELDS = [field.name for field in fields(SamplingParams)]

VALID = {
    "n": [1, 128],
    "temperature": [0, 0.0, 1, 2.0],
    "top_p": [1e-9, 1, 1.0],
    "top_k": [-1, 0, 1, VOCAB],
    "min_p": [0, 0.5, 1.0],
    "presence_penalty": [-2, 2.0],
    "frequency_penalty": [-2.0, 2],
    "repetition_penalty": [0.01, 1, 2.0],
    "logit_bias": [(), ((0, -100), (VOCAB - 1, 100.0))],
    "seed": [None, 0, -(2**63), 2**63 - 1],
    "logprobs": [None, 0, 20],
    "max_tokens": [None, 1, 2**31 - 1],
    "min_tokens": [0, 7],
    "stop": [(), ("a",) * 16, ("x" * 1024,), ("👋",)],
    "stop_token_ids": [(), (0, VOCAB - 1)],
    "ignore_eos": [True, False],
}

INVALID = {
    "n": [0, 129, 1.0, True, "1", None, 10**400],
    "temperature": [-0.1, 2.1, math.nan, math.inf, True, "1", None, 10**400],
    "top_p": [0, 0.0, 1.01, -1, math.nan, None],
    "top_k": [-2, VOCAB + 1, 1.0, False],
    "min_p": [-0.1, 1.1, math.nan],
    "presence_penalty": [-2.1, 2.1, math.nan, "0"],
    "frequency_penalty": [-2.1, 2.1, math.inf],
    "repetition_penalty": [0, 0.0099, 1e-308, -1.0, 2.1, math.nan],
    "logit_bias": [
        ((VOCAB, 1.0),),
        ((-1, 1.0),),
        ((True, 1.0),),
        ((1, 101.0),),
        ((1, math.nan),),
        ((1, 1.0), (1, 2.0)),
        ((1,),),
        (1,),
        {1: 1.0},
        tuple((token, 0.0) for token in range(1025)),
    ],
    "seed": [-(2**63) - 1, 2**63, 1.5, True, 10**5000],
    "logprobs": [-1, 21, True, 1.0],
    "max_tokens": [0, -1, 2**31, 1.0, True],
    "min_tokens": [-1, None, 1.0, 2**31],
    "stop": [("",), ("a",) * 17, ("x" * 1025,), ("\ud800",), (1,), "abc", ["a"]],
    "stop_token_ids": [(VOCAB,), (-1,), (True,), (1.0,), [1], tuple(range(1)) * 1025],
    "ignore_eos": [1, 0, None, "yes"],
}


def _cases(table: dict[str, list]) -> list[tuple[str, object]]:
    return [(field, value) for field, values in table.items() for value in values]


def _short(value: object) -> str:
    return value if isinstance(value, str) and value.isalnum() else type(value).__name__


def test_every_field_has_cases() -> None:
    assert sorted(VALID) == sorted(INVALID) == sorted(FIELDS)


def test_the_defaults_are_valid() -> None:
    check_sampling(SamplingParams(), vocab_size=VOCAB)


@pytest.mark.parametrize(("field", "value"), _cases(VALID), ids=_short)
def test_accepts(field: str, value: object) -> None:
    check_sampling(replace(SamplingParams(), **{field: value}), vocab_size=VOCAB)


@pytest.mark.parametrize(("field", "value"), _cases(INVALID), ids=_short)
def test_refuses_and_names_the_field(field: str, value: object) -> None:
    with pytest.raises(ClientError) as refused:
        check_sampling(replace(SamplingParams(), **{field: value}), vocab_size=VOCAB)
    assert refused.value.field == field
    assert refused.value.message.startswith(field)
    assert refused.value.status == 400
    assert len(refused.value.message) < 200
    assert refused.value.message.isascii()


def test_the_message_says_the_range() -> None:
    with pytest.raises(ClientError, match=r"a number from 0 to 2, not 3"):
        check_sampling(SamplingParams(temperature=3), vocab_size=VOCAB)
    with pytest.raises(ClientError, match=r"above 0 and up to 1, not 0"):
        check_sampling(SamplingParams(top_p=0), vocab_size=VOCAB)
    with pytest.raises(ClientError, match=r"an integer from 0 to 5, not 6"):
        check_sampling(SamplingParams(logprobs=6), vocab_size=VOCAB, max_logprobs=5)


def test_min_tokens_is_at_most_max_tokens() -> None:
    check_sampling(SamplingParams(min_tokens=5, max_tokens=5), vocab_size=VOCAB)
    with pytest.raises(ClientError, match=r"min_tokens must be at most max_tokens \(5\), not 6"):
        check_sampling(SamplingParams(min_tokens=6, max_tokens=5), vocab_size=VOCAB)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(deadline=None, max_examples=300)
@given(values=st.dictionaries(st.sampled_from(FIELDS), anything, max_size=4))
def test_whatever_comes_is_valid_or_a_client_error(values: dict[str, object]) -> None:
    try:
        check_sampling(replace(SamplingParams(), **values), vocab_size=VOCAB)
    except ClientError as refused:
        assert refused.field in FIELDS


@settings(deadline=None, max_examples=200)
@given(
    prompt_len=st.integers(0, 40),
    max_model_len=st.integers(1, 30),
    max_tokens=st.none() | st.integers(1, 40),
    min_tokens=st.integers(0, 10),
    default=st.none() | st.integers(1, 40),
    own_seed=st.none() | st.integers(MIN := -(2**63), -MIN - 1),
)
def test_resolved_parameters_fit_the_context(
    prompt_len: int,
    max_model_len: int,
    max_tokens: int | None,
    min_tokens: int,
    default: int | None,
    own_seed: int | None,
) -> None:
    params = SamplingParams(max_tokens=max_tokens, min_tokens=min_tokens, seed=own_seed)
    try:
        resolved = resolve_sampling(
            params,
            prompt_len=prompt_len,
            max_model_len=max_model_len,
            seed=42,
            default_max_tokens=default,
        )
    except ClientError as refused:
        needed = max(1, max_tokens or 0, min_tokens)
        assert prompt_len == 0 or prompt_len + needed > max_model_len
        assert prompt_len == 0 or refused.code == "context_length_exceeded"
        return
    assert resolved.max_tokens is not None
    assert 1 <= resolved.max_tokens <= max_model_len - prompt_len
    assert max_tokens is None or resolved.max_tokens == max_tokens
    if max_tokens is None:
        wanted = max(min_tokens, default or max_model_len)
        assert resolved.max_tokens == min(wanted, max_model_len - prompt_len)
    assert resolved.seed == (42 if own_seed is None else own_seed)
    assert replace(resolved, max_tokens=max_tokens, seed=own_seed) == params


def test_open_ends_are_filled() -> None:
    resolved = resolve_sampling(SamplingParams(), prompt_len=3, max_model_len=10, seed=9)
    assert (resolved.max_tokens, resolved.seed) == (7, 9)


def test_too_many_tokens_names_both_numbers() -> None:
    with pytest.raises(ClientError, match=r"has 8 tokens and max_tokens asks for 5 .* is 10") as e:
        resolve_sampling(SamplingParams(max_tokens=5), prompt_len=8, max_model_len=10, seed=0)
    assert (e.value.field, e.value.code) == ("max_tokens", "context_length_exceeded")


def test_a_prompt_that_fills_the_context_is_refused() -> None:
    with pytest.raises(ClientError, match=r"has 10 tokens, .* context of 10") as e:
        resolve_sampling(SamplingParams(), prompt_len=10, max_model_len=10, seed=0)
    assert (e.value.field, e.value.code) == ("prompt", "context_length_exceeded")


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ClientError, match="prompt is empty"):
        resolve_sampling(SamplingParams(), prompt_len=0, max_model_len=10, seed=0)


@pytest.mark.parametrize(
    ("default", "prompt_len", "min_tokens", "resolved"),
    [(16, 3, 0, 16), (16, 95, 0, 5), (16, 99, 0, 1), (16, 3, 20, 20), (None, 3, 0, 97)],
)
def test_a_default_never_asks_for_more_than_there_is_room(
    default: int | None, prompt_len: int, min_tokens: int, resolved: int
) -> None:
    params = resolve_sampling(
        SamplingParams(min_tokens=min_tokens),
        prompt_len=prompt_len,
        max_model_len=100,
        seed=0,
        default_max_tokens=default,
    )
    assert params.max_tokens == resolved
