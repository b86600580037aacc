"""What is read of an answer's JSON, whole or in streamed chunks; the rest is skipped."""

from collections.abc import Iterator

import msgspec

from .answer import ScoredToken


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class Said(msgspec.Struct):
    """A message, or a piece of one. Servers name a model's reasoning in one of two ways."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None

    def aside(self) -> str:
        """Content that is not the answer's text: reasoning, a refusal, calls of tools."""
        said = self.reasoning_content or self.reasoning or self.refusal or ""
        if not self.tool_calls:
            return said
        functions = (call.function for call in self.tool_calls)
        return said + "".join(
            f"{function.name or ''}{function.arguments or ''}" for function in functions if function
        )


class _Alternative(msgspec.Struct):
    token: str
    logprob: float


class _Token(msgspec.Struct):
    token: str
    logprob: float
    top_logprobs: list[_Alternative] | None = None

    def scored(self) -> ScoredToken:
        top = tuple((one.token, one.logprob) for one in self.top_logprobs or ())
        return ScoredToken(self.token, self.logprob, top)


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class Piece(msgspec.Struct):
    """A part of one choice: `delta` when streamed, `message` when whole, `text` of a completion."""

    index: int = 0
    delta: Said | None = None
    message: Said | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None

    def scored(self) -> Iterator[ScoredToken]:
        """The log-probabilities that came with it."""
        tokens = (self.logprobs and self.logprobs.content) or ()
        return (token.scored() for token in tokens)


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """The server's own count of tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None

    @property
    def cached_tokens(self) -> int | None:
        """Of the prompt's; None if the server says nothing about them."""
        details = self.prompt_tokens_details
        return details.cached_tokens if details else None


class _Error(msgspec.Struct):
    message: str | None = None


class Chunk(msgspec.Struct):
    """A streamed chunk, a whole answer, or an error."""

    choices: list[Piece] | None = None
    usage: Usage | None = None
    error: _Error | str | None = None

    def error_message(self) -> str | None:
        """What the server says went wrong; None: nothing did."""
        match self.error:
            case _Error(message=message):
                return message or "an error without a message"
            case error:
                return error


_decode = msgspec.json.Decoder(Chunk).decode


def decoded(data: bytes) -> Chunk | None:
    """The chunk, or None if that is none by the API."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
