"""The OpenAI API's answers, as msgspec writes them. Field names and order are the API's."""

from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from antiphon.types import FinishReason

from .reply import TokenCounts

Choice = TypeVar("Choice", "ChatChoice", "ChatChunkChoice", "TextChoice")

encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"


class CachedTokens(Struct):
    """The part of the prompt that needed no computing."""

    cached_tokens: int


class Usage(Struct):
    """Token counts of a call."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class TopLogprob(Struct):
    """One alternative at one position."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct):
    """A chosen token and its alternatives."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct):
    """Log-probabilities of a chat choice."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(Struct):
    """Log-probabilities of a text choice."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class ChatMessage(Struct):
    """What the model said."""

    role: Literal["assistant"]
    content: str
    refusal: None = None


class ChatChoice(Struct):
    """One whole answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class ChatDelta(Struct):
    """What was added to an answer."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(Struct):
    """A part of one answer."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None


class TextChoice(Struct):
    """One completion, or a part of it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None


class Answer(Struct, Generic[Choice]):
    """The frame of every answer and of every chunk. `usage` is absent, null or a count."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: Usage | UnsetType | None = UNSET


def event(body: Struct) -> bytes:
    """One server-sent event."""
    return b"data: " + encode(body) + b"\n\n"


def usage(counts: TokenCounts) -> Usage:
    """The counts as the API has them."""
    return Usage(
        counts.prompt,
        counts.output,
        counts.prompt + counts.output,
        CachedTokens(counts.cached),
    )


def finish_name(reason: FinishReason | None) -> str | None:
    """The API's word for why a choice ended; None while it goes on, or if it broke off."""
    match reason:
        case FinishReason.STOP | FinishReason.LENGTH:
            return reason.value
        case _:
            return None
