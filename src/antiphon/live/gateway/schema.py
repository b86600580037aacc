"""What the body of a request may contain: the part that chat and completions share.

The models are strict (`"1"` is no number, `true` is no integer) and closed (an unknown field is an
error). They check types and sizes; the ranges of the sampling knobs are `core.validation`'s.
A field that is null counts as absent, so that clients may send their whole option list.
"""

from typing import Annotated, Any, Literal

from annotated_types import MaxLen
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from antiphon.errors import ClientError
from antiphon.types import SamplingParams, TokenId

MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_STOP_IDS = 1024
MAX_BIASES = 1024
MAX_PROMPTS = 256
"""Prompts in one completions call."""
MAX_CHOICES = 1024
"""Prompts × n of one call: what one connection may ask for at once."""

TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(fail_fast=True)]
StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]


def one_or_many(value: object) -> str | None:
    """Tell the text form from the list form, so that an error speaks of the form that was meant."""
    return "one" if isinstance(value, str) else "many" if isinstance(value, list) else None


StopTexts = Annotated[
    Annotated[StopText, Tag("one")] | Annotated[list[StopText], MaxLen(MAX_STOPS), Tag("many")],
    Discriminator(
        one_or_many,
        custom_error_type="stop_type",
        custom_error_message="Input should be a string or a list of strings",
    ),
]


class Body(BaseModel):
    """Base of all request bodies."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class StreamOptions(Body):
    """Options that count only with `stream: true`."""

    include_usage: bool | None = Field(None, description="Send a last chunk with the token counts.")
    include_obfuscation: bool | None = Field(None, description="Accepted, without effect.")
    continuous_usage_stats: bool | None = Field(
        None, description="Accepted, without effect: the counts come at the end. GuideLLM sends it."
    )


class AntiphonOptions(Body):
    """Our own options, kept together so that they never clash with a new OpenAI field."""

    priority: int | None = Field(None, description="0 (the default) to 100; lower is served first.")
    session: Annotated[str, MaxLen(256)] | None = Field(
        None, description="Requests of one conversation; a hint for routing."
    )


class GenerationBody(Body):
    """Fields of both `/v1/chat/completions` and `/v1/completions`."""

    model: Annotated[str, MaxLen(512)]
    n: int = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Annotated[dict[str, float], Field(max_length=MAX_BIASES)] | None = None
    seed: int | None = None
    stop: StopTexts | None = None

    top_k: int = Field(0, description="Keep the k likeliest tokens; 0 or -1 keeps all.")
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: Annotated[TokenIds, MaxLen(MAX_STOP_IDS)] | None = None
    priority: int | None = Field(None, description="0 (the default) to 100; lower is served first.")
    timeout: float | None = Field(None, description="Seconds; the server's limit still holds.")
    antiphon: AntiphonOptions | None = None

    user: str | None = Field(None, description="Accepted, without effect.")
    metadata: dict[str, Any] | None = Field(None, description="Accepted, without effect.")
    store: bool | None = Field(None, description="Accepted; nothing is stored.")
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = Field(
        None, description="Accepted, without effect."
    )
    safety_identifier: str | None = Field(None, description="Accepted, without effect.")
    prompt_cache_key: str | None = Field(None, description="Accepted, without effect.")

    def include_usage(self) -> bool:
        """Whether the stream ends with a chunk of token counts.

        Raises `ClientError` if there is no stream whose options these could be.
        """
        if self.stream_options is not None and not self.stream:
            raise ClientError("stream_options needs stream: true", field="stream_options")
        return bool(self.stream_options and self.stream_options.include_usage)

    def sampling(self, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """The knobs in the core's words; `max_tokens` and `logprobs` differ between the routes."""
        stop = self.stop
        return SamplingParams(
            n=self.n,
            temperature=float(self.temperature),
            top_p=float(self.top_p),
            top_k=0 if self.top_k == -1 else self.top_k,
            min_p=float(self.min_p),
            presence_penalty=float(self.presence_penalty),
            frequency_penalty=float(self.frequency_penalty),
            repetition_penalty=float(self.repetition_penalty),
            logit_bias=biases(self.logit_bias) if self.logit_bias else (),
            seed=self.seed,
            logprobs=logprobs,
            max_tokens=max_tokens,
            min_tokens=self.min_tokens,
            stop=() if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=self.ignore_eos,
        )


def biases(by_id: dict[str, float]) -> tuple[tuple[TokenId, float], ...]:
    """JSON keys are text: `{"42": -100}` → `((42, -100.0),)`. Raises `ClientError`."""
    pairs: dict[TokenId, float] = {}
    for key, bias in by_id.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise ClientError(
                f"logit_bias: the key {key[:32]!r} is no token id", field="logit_bias"
            )
        pairs[int(key)] = float(bias)
    return tuple(sorted(pairs.items()))
