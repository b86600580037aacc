"""The tokenizer in a GGUF file's metadata."""

import numpy as np

from antiphon.errors import ModelFileError

from .facts import Facts
from .gguf_file import GgufFile
from .model_spec import ModelSpec
from .tokenizer_source import GgufTokenizer

_PRE_WITH_BOS = ("llama3", "llama-v3", "llama-bpe")


def tokenizer_from_gguf(file: GgufFile, spec: ModelSpec) -> GgufTokenizer:
    """The tokenizer in the metadata; its vocabulary must be as large as the embedding matrix."""
    facts = Facts(file.path, file.metadata)
    model, pre = facts.string("tokenizer.ggml.model"), facts.string("tokenizer.ggml.pre", "default")
    tokens = _strings(facts, "tokenizer.ggml.tokens")
    scores = _numbers(facts, "tokenizer.ggml.scores", len(tokens))
    types = _numbers(facts, "tokenizer.ggml.token_type", len(tokens))
    if len(tokens) != spec.vocab_size:
        problem = f"{len(tokens)} tokens, but the embedding matrix has {spec.vocab_size} rows"
        raise ModelFileError(file.path, f"tokenizer.ggml.tokens: {problem}")
    template = facts.get("tokenizer.chat_template")
    adds = facts.boolean("tokenizer.ggml.add_bos_token", model == "llama" or pre in _PRE_WITH_BOS)
    return GgufTokenizer(
        model=model,
        pre=pre,
        tokens=tokens,
        merges=_strings(facts, "tokenizer.ggml.merges") if model == "gpt2" else (),
        scores=tuple(float(score) for score in scores),
        token_types=tuple(int(kind) for kind in types),
        chat_template=None if template is None else facts.string("tokenizer.chat_template"),
        eos_token_ids=spec.eos_token_ids,
        bos_token_id=spec.bos_token_id,
        add_bos=adds and spec.bos_token_id is not None,
    )


def _strings(facts: Facts, key: str) -> tuple[str, ...]:
    value = facts.get(key)
    if not isinstance(value, tuple):
        raise facts.wrong(key, "a list of strings")
    return value


def _numbers(facts: Facts, key: str, count: int) -> list[float]:
    value = facts.get(key)
    if value is None:
        return []
    if not isinstance(value, np.ndarray) or len(value) != count:
        raise facts.wrong(key, f"a list of {count} numbers, one for each token")
    return value.tolist()
