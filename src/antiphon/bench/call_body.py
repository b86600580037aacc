"""What a call says, as bytes: the JSON of its body and the HTTP before it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.workload import Api, Ask, Message

from .server import Server

_OPTIONAL = {
    "n": 1,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_tokens": 0,
    "stop": (),
    "ignore_eos": False,
}
"""Fields of an ask that go into the call under their own names, unless they say nothing."""
_PARAGRAPH = "\n\n"
"""Between the messages of a prompt that is no chat."""


def call_body(server: Server, ask: Ask, history: Sequence[Message] = ()) -> dict[str, Any]:
    """The body. What is at its default is left out, so that any server with the API understands it.

    The parts of `history` must all be text by now.
    """
    said = [(message.role, "".join(map(str, message.parts))) for message in history]
    body: dict[str, Any] = {"model": ask.model or server.model}
    if ask.api is Api.CHAT:
        said.append(("user", ask.text))
        body["messages"] = [{"role": role, "content": text} for role, text in said]
    else:
        body["prompt"] = _PARAGRAPH.join([*(text for _, text in said), ask.text])
    body |= {"max_tokens": ask.max_tokens, "temperature": ask.temperature, "seed": ask.seed}
    for name, default in _OPTIONAL.items():
        if (value := getattr(ask, name)) != default:
            body[name] = value
    if ask.top_logprobs is not None:
        chat = {"logprobs": True, "top_logprobs": ask.top_logprobs}
        body |= chat if ask.api is Api.CHAT else {"logprobs": ask.top_logprobs}
    if ask.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if "max_tokens" in server.without:
        body["max_completion_tokens"] = body["max_tokens"]
    for name in server.without:
        body.pop(name, None)
    return body | dict(server.extra_body)


def call_bytes(server: Server, ask: Ask, history: Sequence[Message] = ()) -> bytes:
    """The whole call, ready to be sent."""
    body = msgspec.json.encode(call_body(server, ask, history))
    host = f"[{server.host}]" if ":" in server.host else server.host
    headers = {
        "Host": f"{host}:{server.port}",
        "User-Agent": "antiphon-bench",
        "Accept": "text/event-stream" if ask.stream else "application/json",
        # What is compressed comes in lumps, at times that say nothing about its tokens.
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        **server.headers(),
        "Content-Length": str(len(body)),
    }
    first = f"POST {server.path(ask.api)} HTTP/1.1"
    lines = [first, *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
