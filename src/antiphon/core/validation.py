"""Which sampling parameters are valid, and what the open ones mean for one prompt.

The gateway and the Python API both ask here, so that a value is right or wrong everywhere alike.
Nothing is trusted: values may come straight from JSON, whatever the annotations say.
"""

from dataclasses import replace

from antiphon.errors import ClientError
from antiphon.types import SamplingParams

MAX_SEQUENCES = 128
MAX_OUTPUT_TOKENS = 2**31 - 1
DEFAULT_MAX_TOKENS = 16
"""Of a text completion that names no limit, as in the OpenAI API: see `resolve_sampling`."""
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 1024
MAX_TOKEN_LIST = 1024
"""Most entries of `logit_bias`, and of `stop_token_ids`."""
MIN_REPETITION_PENALTY = 0.01
"""Scores are divided by it: near 0 they would leave the range of floats."""
MIN_SEED, MAX_SEED = -(2**63), 2**63 - 1


def check_sampling(params: SamplingParams, *, vocab_size: int, max_logprobs: int = 20) -> None:
    """Raise `ClientError` for the first field that is out of range; the message says the range.

    Integers are really integers (neither bool nor 1.0), numbers are finite. Does not look at the
    prompt: see `resolve_sampling`.
    """
    _integer("n", params.n, 1, MAX_SEQUENCES)
    _number("temperature", params.temperature, 0, 2)
    _number("top_p", params.top_p, 0, 1, open_low=True)
    _integer("top_k", params.top_k, -1, vocab_size, "(0 and -1 keep all tokens)")
    _number("min_p", params.min_p, 0, 1)
    _number("presence_penalty", params.presence_penalty, -2, 2)
    _number("frequency_penalty", params.frequency_penalty, -2, 2)
    _number("repetition_penalty", params.repetition_penalty, MIN_REPETITION_PENALTY, 2)
    if params.seed is not None:
        _integer("seed", params.seed, MIN_SEED, MAX_SEED)
    if params.logprobs is not None:
        _integer("logprobs", params.logprobs, 0, max_logprobs)
    if type(params.ignore_eos) is not bool:
        raise _wrong("ignore_eos", params.ignore_eos, "true or false")
    _check_lengths(params)
    _check_logit_bias(params.logit_bias, vocab_size)
    _check_stop(params.stop)
    _check_stop_token_ids(params.stop_token_ids, vocab_size)


def resolve_sampling(
    params: SamplingParams,
    *,
    prompt_len: int,
    max_model_len: int,
    seed: int,
    default_max_tokens: int | None = None,
) -> SamplingParams:
    """Parameters with `max_tokens` and `seed` filled in, for a prompt of `prompt_len` tokens.

    `params` has passed `check_sampling`; `seed` is used if the caller gave none. A `max_tokens`
    that the caller left open becomes `default_max_tokens` (None: all the room that the context
    leaves), at least `min_tokens` and within the room: a default refuses nobody. Raises
    `ClientError`, code `context_length_exceeded`, if prompt and output can't fit the context of
    `max_model_len` tokens.
    """
    if prompt_len < 1:
        raise ClientError("prompt is empty: it needs at least one token", field="prompt")
    check_prompt_len(prompt_len, max_model_len=max_model_len)
    room = max_model_len - prompt_len
    for field, asked in (("max_tokens", params.max_tokens), ("min_tokens", params.min_tokens)):
        if asked is not None and asked > room:
            raise _too_long(
                field,
                f"the prompt has {prompt_len} tokens and {field} asks for {asked} more, "
                f"{prompt_len + asked} in all, but the context is {max_model_len}: "
                f"shorten the prompt or ask for at most {room} tokens",
            )
    limit = params.max_tokens
    if limit is None:
        limit = min(room, max(default_max_tokens or room, params.min_tokens))
    return replace(
        params,
        max_tokens=limit,
        seed=seed if params.seed is None else params.seed,
    )


def check_prompt_len(
    prompt_len: int, *, max_model_len: int, exact: bool = True, field: str = "prompt"
) -> None:
    """Raise `ClientError` if `prompt_len` tokens leave no room for output in the context.

    `exact=False`: the prompt has at least so many; it was not worth counting.
    """
    if prompt_len >= max_model_len:
        count = f"{prompt_len}" if exact else f"at least {prompt_len}"
        raise _too_long(
            field,
            f"the prompt has {count} tokens, which leaves no room for output in the context "
            f"of {max_model_len}: shorten it to at most {max_model_len - 1} tokens",
        )


def _check_lengths(params: SamplingParams) -> None:
    if params.max_tokens is not None:
        _integer("max_tokens", params.max_tokens, 1, MAX_OUTPUT_TOKENS)
    _integer("min_tokens", params.min_tokens, 0, MAX_OUTPUT_TOKENS)
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise _wrong("min_tokens", params.min_tokens, f"at most max_tokens ({params.max_tokens})")


def _check_logit_bias(bias: object, vocab_size: int) -> None:
    seen: set[int] = set()
    for pair in _entries("logit_bias", bias, MAX_TOKEN_LIST):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise _wrong("logit_bias", pair, "pairs of token id and bias")
        token, value = pair
        _integer("logit_bias", token, 0, vocab_size - 1, "as token id")
        _number("logit_bias", value, -100, 100)
        if token in seen:
            raise _wrong("logit_bias", token, "token ids that are named once each")
        seen.add(token)


def _check_stop(stop: object) -> None:
    for text in _entries("stop", stop, MAX_STOP_STRINGS):
        if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_CHARS:
            raise _wrong("stop", text, f"strings of 1 to {MAX_STOP_CHARS} characters")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise _wrong("stop", text, "valid Unicode, without lone surrogates")


def _check_stop_token_ids(tokens: object, vocab_size: int) -> None:
    for token in _entries("stop_token_ids", tokens, MAX_TOKEN_LIST):
        _integer("stop_token_ids", token, 0, vocab_size - 1, "as token id")


def _entries(field: str, value: object, most: int) -> tuple[object, ...]:
    if not isinstance(value, tuple):
        raise _wrong(field, value, "a tuple")
    if len(value) > most:
        raise ClientError(f"{field} has {len(value)} entries: at most {most}", field=field)
    return value


def _integer(field: str, value: object, low: int, high: int, note: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _wrong(field, value, f"an integer from {low} to {high} {note}".rstrip())


def _number(field: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not low <= value <= high  # also refuses NaN and infinity
        or (open_low and value == low)
    ):
        span = f"above {low} and up to {high}" if open_low else f"from {low} to {high}"
        raise _wrong(field, value, f"a number {span}")


def _wrong(field: str, value: object, wanted: str) -> ClientError:
    shown = _shown(value)
    return ClientError(f"{field} must be {wanted}, not {shown}", field=field)


def _shown(value: object) -> str:
    """The value for a message: short, printable and safe to build whatever it is."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    text = ascii(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


def _too_long(field: str, message: str) -> ClientError:
    return ClientError(message, field=field, code="context_length_exceeded")
