"""A checkpoint's tokenizer as the files of a Hugging Face folder."""

import json
import shutil
from pathlib import Path
from typing import assert_never

from antiphon.checkpoint import Checkpoint, GgufTokenizer, TokenizerFiles
from antiphon.text import Tokenizer

_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)


def write_tokenizer(folder: Path, checkpoint: Checkpoint) -> None:
    """Write tokenizer, special tokens and chat template of `checkpoint` into `folder`.

    A folder's files are copied; from GGUF metadata they are made. Raises `ModelFileError` for a
    tokenizer that can't be built, `OSError` for a full disk and its like.
    """
    match checkpoint.tokenizer:
        case TokenizerFiles():
            for name in _FILES:
                if (checkpoint.path / name).is_file():
                    shutil.copyfile(checkpoint.path / name, folder / name)
        case GgufTokenizer() as source:
            tokenizer = Tokenizer.load(source)
            (folder / "tokenizer.json").write_text(tokenizer.as_json(), encoding="utf-8")
            named = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
            config = {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "add_bos_token": source.add_bos,
                **{key: token for key, token in named.items() if token},
                **({} if source.chat_template is None else {"chat_template": source.chat_template}),
            }
            text = json.dumps(config, indent=1, ensure_ascii=False)
            (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
        case other:
            assert_never(other)
