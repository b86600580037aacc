"""How the next token is drawn and when a sequence ends."""

from dataclasses import dataclass

from .ids import TokenId


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """The knobs of one request, with the field's usual names and defaults.

    `core.validation.check_sampling` states the valid ranges. `max_tokens=None` means "as long as
    the context allows" and `seed=None` "draw one"; both are resolved before a `Request` is made.
    `logprobs` is the number of alternatives to report beside the chosen token (0: only the chosen
    one; None: no log-probabilities). `stop` holds text and is matched where text is made, in the
    gateway; the worker knows only token ids.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """Keep the k most likely tokens; 0 keeps all."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[TokenId, float], ...] = ()
    seed: int | None = None
    logprobs: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[TokenId, ...] = ()
    ignore_eos: bool = False
