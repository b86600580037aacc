"""Fields that clients know and that we do not have: refused by name, unless they ask for nothing.

Refusing beats ignoring: whoever asks for JSON output must not get prose and believe it.
"""

from difflib import get_close_matches

from antiphon.errors import ClientError

_ASKS_FOR_NOTHING: dict[str, tuple[object, ...]] = {
    "tools": ([],),
    "tool_choice": ("none",),
    "functions": ([],),
    "function_call": ("none",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "reasoning_effort": (),
    "verbosity": (),
    "moderation": (),
    "best_of": (1,),
    "suffix": ("",),
    "prompt_logprobs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_decoding_backend": (),
    "guided_whitespace_pattern": (),
    "structured_outputs": (),
    "grammar": (),
    "json_schema": (),
    "regex": (),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "early_stopping": (False,),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "truncate_prompt_tokens": (),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "add_special_tokens": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "documents": ([],),
    "mm_processor_kwargs": ({},),
    "cache_salt": (),
    "kv_transfer_params": ({},),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "logits_processors": ([],),
    "echo": (False,),
}
"""Field → the values that ask for nothing, and are dropped."""

_WHY = {
    "best_of": "best_of is not supported: ask for n choices instead",
    "cache_salt": "cache_salt is set by the server from the API key",
}


def reduce(body: dict[str, object], known: frozenset[str]) -> dict[str, object]:
    """Drop fields that ask for nothing (null, or a neutral value of an unsupported field).

    `known` are the fields that this route understands. Raises `ClientError` for a field that is
    unsupported, or unknown (naming the nearest known one).
    """
    kept: dict[str, object] = {}
    for name, value in body.items():
        if value is None:
            continue
        if name in known:
            kept[name] = value
        elif name not in _ASKS_FOR_NOTHING:
            raise ClientError(_unknown(name, known), field=name, code="unknown_parameter")
        elif not _neutral(name, value, body):
            message = _WHY.get(name, f"{name} is not supported")
            raise ClientError(message, field=name, code="unsupported_parameter")
    return kept


def _neutral(name: str, value: object, body: dict[str, object]) -> bool:
    if name == "best_of":
        return type(value) is int and value == (body.get("n") or 1)
    return any(type(value) is type(none) and value == none for none in _ASKS_FOR_NOTHING[name])


def _unknown(name: str, known: frozenset[str]) -> str:
    shown = repr(name[:64])
    near = get_close_matches(name[:64], sorted(known), 1)
    return f"Unknown field {shown}" + (f"; did you mean {near[0]!r}?" if near else "")
