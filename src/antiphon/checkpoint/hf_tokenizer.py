"""The tokenizer files of a Hugging Face folder."""

from pathlib import Path
from typing import Any

from antiphon.errors import ModelFileError

from .facts import Facts, read_json
from .model_spec import ModelSpec
from .tokenizer_source import TokenizerFiles


def tokenizer_from_folder(folder: Path, spec: ModelSpec) -> TokenizerFiles:
    """Where the tokenizer is and what its config says; tokenizer.json is required."""
    tokenizer_json = folder / "tokenizer.json"
    if not tokenizer_json.is_file():
        problem = "missing; make it with transformers: AutoTokenizer(...).save_pretrained(folder)"
        raise ModelFileError(tokenizer_json, problem)
    path = folder / "tokenizer_config.json"
    facts = Facts(path, _optional(path))
    config = {**_optional(folder / "special_tokens_map.json"), **_optional(path)}
    adds = facts.get("add_bos_token")
    if adds is None:
        adds = _template_starts_with_special(read_json(tokenizer_json).get("post_processor"))
    else:
        adds = facts.boolean("add_bos_token")
    return TokenizerFiles(
        tokenizer_json=tokenizer_json,
        config=config,
        chat_template=_chat_template(folder, facts),
        eos_token_ids=spec.eos_token_ids,
        bos_token_id=spec.bos_token_id,
        add_bos=adds and spec.bos_token_id is not None,
    )


def _chat_template(folder: Path, facts: Facts) -> str | None:
    jinja = folder / "chat_template.jinja"
    if jinja.exists():
        try:
            return jinja.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelFileError(jinja, f"can't be read: {error}") from None
    value = facts.get("chat_template")
    if isinstance(value, list):
        named = {t.get("name"): t.get("template") for t in value if isinstance(t, dict)}
        value = named.get("default")
    if value is not None and not isinstance(value, str):
        raise facts.wrong("chat_template", "text, or a list with a 'default' template")
    return value


def _template_starts_with_special(processor: Any) -> bool:
    """Whether tokenizer.json's post-processor puts a special token before a single sequence."""
    match processor:
        case {"type": "Sequence", "processors": [*parts]}:
            return any(_template_starts_with_special(part) for part in parts)
        case {"type": "TemplateProcessing", "single": [{"SpecialToken": _}, *_]}:
            return True
    return False


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
