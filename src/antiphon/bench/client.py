"""One user's side of the OpenAI chat API."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import aiohttp
import msgspec

from antiphon.types import Seconds
from antiphon.workload import Ask

from .answer import Answer, Choice, ScoredToken

_LINE_BYTES = 2**20
_ERROR_CHARS = 500
_OPTIONAL = {
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_tokens": 0,
    "stop": (),
}
"""Fields of an ask that go into the call under their own names, unless they say nothing."""


class _Text(msgspec.Struct):
    content: str | None = None


class _Alternative(msgspec.Struct):
    token: str
    logprob: float


class _Token(msgspec.Struct):
    token: str
    logprob: float
    top_logprobs: list[_Alternative] = []

    def scored(self) -> ScoredToken:
        top = tuple((one.token, one.logprob) for one in self.top_logprobs)
        return ScoredToken(self.token, self.logprob, top)


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Piece(msgspec.Struct):
    index: int
    delta: _Text | None = None
    message: _Text | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None

    @property
    def cached_tokens(self) -> int:
        details = self.prompt_tokens_details
        return (details and details.cached_tokens) or 0


class _Error(msgspec.Struct):
    message: str = "an error without a message"


class _Chunk(msgspec.Struct):
    """What is read of a streamed chunk or of a whole answer."""

    choices: list[_Piece] = []
    usage: _Usage | None = None
    error: _Error | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


@dataclass(slots=True)
class _Partial:
    """An answer as far as it has come."""

    texts: list[str]
    reasons: list[str | None]
    scored: list[list[ScoredToken]]
    stamps: list[Seconds] = field(default_factory=list)
    usage: _Usage = field(default_factory=_Usage)
    error: str = ""
    on_first_text: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, choices: int, on_first_text: Callable[[], None]) -> "_Partial":
        """Nothing has come yet."""
        empty = [[] for _ in range(choices)]
        return cls([""] * choices, [None] * choices, empty, on_first_text=on_first_text)

    def choices(self) -> tuple[Choice, ...]:
        """As far as they have come."""
        return tuple(map(Choice, self.texts, self.reasons, map(tuple, self.scored)))

    def take(self, chunk: _Chunk, now: Seconds) -> None:
        """Mutates: one more piece came. What is of no choice that was asked for is an error."""
        if chunk.error is not None:
            self.error = chunk.error.message[:_ERROR_CHARS]
        if chunk.usage is not None:
            self.usage = chunk.usage
        for piece in chunk.choices:
            if not 0 <= piece.index < len(self.texts):
                self.error = f"a choice of index {piece.index} was not asked for"
                return
            text = (piece.delta or piece.message or _Text()).content
            if text:
                self.texts[piece.index] += text
                if not self.stamps:
                    self.on_first_text()
                self.stamps.append(now)
            tokens = (piece.logprobs and piece.logprobs.content) or []
            self.scored[piece.index] += (token.scored() for token in tokens)
            self.reasons[piece.index] = piece.finish_reason or self.reasons[piece.index]


class Client:
    """Sends chats to one server. Use as `async with Client(url, model) as client`.

    `timeout_s` bounds each ask as a whole. Connections are kept open between asks. `on_first_text`
    is called at each answer's first text.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout_s: Seconds = 600.0,
        on_first_text: Callable[[], None] = lambda: None,
    ) -> None:
        self._url = url.rstrip("/") + "/v1/chat/completions"
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None
        self._on_first_text = on_first_text

    async def __aenter__(self) -> "Client":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=self._timeout,
            headers=self._headers,
            read_bufsize=_LINE_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, ask: Ask, due_at: Seconds | None = None) -> Answer:
        """Send one ask now and wait for its end. Whatever goes wrong is in the answer."""
        if self._session is None:
            raise RuntimeError("use the client in `async with`")
        sent_at = time.monotonic()
        partial = _Partial.of(ask.n, self._on_first_text)
        status, request_id = 0, ""
        try:
            async with self._session.post(self._url, json=_body(self._model, ask)) as response:
                status = response.status
                request_id = response.headers.get("x-request-id", "")
                if status != 200:
                    partial.error = (await response.text())[:_ERROR_CHARS] or f"HTTP {status}"
                elif ask.stream:
                    await _read_stream(response, partial)
                else:
                    partial.take(_decode(await response.read()), time.monotonic())
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
            partial.error = f"{type(error).__name__}: {error}"
        return Answer(
            number=ask.number,
            due_at=sent_at if due_at is None else due_at,
            sent_at=sent_at,
            ended_at=time.monotonic(),
            status=status,
            choices=partial.choices(),
            token_at=tuple(partial.stamps),
            prompt_tokens=partial.usage.prompt_tokens,
            completion_tokens=partial.usage.completion_tokens,
            cached_tokens=partial.usage.cached_tokens,
            request_id=request_id,
            error=partial.error,
        )


def _body(model: str, ask: Ask) -> dict[str, Any]:
    """What is at its default is left out, so that any server with the API understands it."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": ask.text}],
        "max_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "seed": ask.seed,
        "n": ask.n,
    }
    for name, default in _OPTIONAL.items():
        if (value := getattr(ask, name)) != default:
            body[name] = value
    if ask.top_logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": ask.top_logprobs}
    if ask.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


async def _read_stream(response: aiohttp.ClientResponse, partial: _Partial) -> None:
    async for data in _events(response):
        now = time.monotonic()
        if data == b"[DONE]":
            return
        partial.take(_decode(data), now)
        if partial.error:
            return
    partial.error = partial.error or "the stream ended without [DONE]"


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of server-sent events, one line each as the OpenAI API sends them."""
    async for line in response.content:
        if line.startswith(b"data:"):
            yield line[5:].strip()


async def wait_until_ready(url: str, *, timeout_s: Seconds) -> None:
    """Return when the server answers /ready with 200. Raises `TimeoutError` after `timeout_s`."""
    async with asyncio.timeout(timeout_s), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url.rstrip("/") + "/ready") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass  # not listening yet
            await asyncio.sleep(0.05)
