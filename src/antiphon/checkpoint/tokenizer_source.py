"""Where a model's tokenizer comes from: the facts of a checkpoint that `text` builds one from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """The tokenizer of a Hugging Face folder.

    `config` is tokenizer_config.json merged with special_tokens_map.json and may be empty.
    `chat_template` comes from tokenizer_config.json or chat_template.jinja. `add_bos` says whether
    a plain prompt starts with the beginning-of-sequence token.
    """

    tokenizer_json: Path
    config: Mapping[str, Any]
    chat_template: str | None
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    add_bos: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTokenizer:
    """The tokenizer in the metadata of a GGUF file.

    `model` is tokenizer.ggml.model: "gpt2" (byte-level BPE) or "llama" (SentencePiece). `pre` is
    tokenizer.ggml.pre, for example "smollm", "llama-bpe" or "qwen2". `tokens`, `scores` and
    `token_types` are indexed by token id (the latter two are empty when the file lacks them);
    `merges` holds "left right" pairs, best first. `space_prefix` says whether SentencePiece puts a
    blank before the text. The rest is as in `TokenizerFiles`.
    """

    path: Path
    model: str
    pre: str
    tokens: tuple[str, ...]
    merges: tuple[str, ...]
    scores: tuple[float, ...]
    token_types: tuple[int, ...]
    space_prefix: bool = True
    chat_template: str | None
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    add_bos: bool


TokenizerSource = TokenizerFiles | GgufTokenizer
