"""A tokenizer built from GGUF metadata gives the ids that the original gives."""

from dataclasses import replace
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import ModelFileError
from antiphon.testing.text_corpus import CORPUS, DIGITS_AFTER_BLANKS
from antiphon.text import Tokenizer


def oracle_ids(oracle, text):
    return tuple(oracle.backend_tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("text", CORPUS)
def test_same_ids_as_transformers(smollm, oracle, text):
    assert smollm.encode(text) == oracle_ids(oracle, text)


@pytest.mark.parametrize("text", CORPUS + DIGITS_AFTER_BLANKS)
def test_same_ids_as_the_published_rule(smollm, published, text):
    assert smollm.encode(text) == oracle_ids(published, text)


@given(
    text=st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("ab 1\n\t'")), max_size=60)
)
@settings(max_examples=300, deadline=None)
def test_same_ids_as_the_published_rule_on_any_text(smollm, published, text):
    assert smollm.encode(text) == oracle_ids(published, text)


@pytest.mark.parametrize("text", DIGITS_AFTER_BLANKS)
def test_digits_are_cut_off_before_words(smollm, oracle, text):
    """Where transformers' conversion and the published rule differ, ours is the published one."""
    assert smollm.encode(text) != oracle_ids(oracle, text)


def test_loads_quickly(smollm_source):
    started = process_time()
    Tokenizer.load(smollm_source)
    assert process_time() - started < 0.5


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"pre": "klingon"}, "tokenizer.ggml.pre 'klingon'"),
        ({"model": "t5"}, "tokenizer.ggml.model 't5'"),
        ({"tokens": ()}, "tokenizer.ggml.tokens"),
        ({"merges": ()}, "tokenizer.ggml.merges"),
        ({"merges": ("Ġ zzzzzz",)}, "tokenizer.ggml.merges joins 'Ġ' and 'zzzzzz'"),
        ({"merges": ("nospace",)}, "tokenizer.ggml.merges joins 'nospace' and ''"),
        ({"token_types": (1, 1)}, "tokenizer.ggml.token_type has 2 entries"),
        ({"model": "llama", "scores": (1.0,)}, "tokenizer.ggml.scores has 1 entries"),
    ],
)
def test_bad_metadata_is_one_error_that_names_the_key(smollm_source, change, named):
    with pytest.raises(ModelFileError) as raised:
        Tokenizer.load(replace(smollm_source, **change))
    assert str(raised.value).startswith(f"{smollm_source.path}: ")
    assert named in str(raised.value)
