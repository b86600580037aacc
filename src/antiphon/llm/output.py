"""What `LLM` answers."""

from dataclasses import dataclass

from antiphon.types import FinishReason, Logprobs, TokenId


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOutput:
    """One completion. `token_ids` has every token, `text` none that only marks the end.

    `finish_reason` is "stop", "length", or "error" with a `message`.
    """

    index: int
    text: str
    token_ids: tuple[TokenId, ...]
    finish_reason: FinishReason
    logprobs: tuple[Logprobs, ...] | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """What came of one prompt: `sampling.n` completions. `prompt` is None for a prompt of ids."""

    prompt: str | None
    prompt_token_ids: tuple[TokenId, ...]
    cached_tokens: int
    outputs: tuple[CompletionOutput, ...]
