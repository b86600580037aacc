"""The bytes of a scripted answer, each with how long after the ones before it they are written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import msgspec

from antiphon.types import Seconds

from .scripted_calls import Behaviour, CallSays, Ending, ServedCall

_WORD = " word"
_HALF = frozenset(
    {
        Ending.HALF,
        Ending.RESET,
        Ending.ERROR_EVENT,
        Ending.BAD_JSON,
        Ending.ENDLESS_LINE,
        Ending.HANGS,
    }
)
_PROMPT_TOKENS, _CACHED_TOKENS = 7, 3


class Then(Enum):
    """What happens to the connection after a step."""

    GO_ON = "go on"
    CLOSE = "close"
    RESET = "reset"
    HANG = "hang"
    """Nothing more; the call keeps its slot."""


@dataclass(frozen=True, slots=True)
class Step:
    """Write `data` so long after the step before it. `is_content`: it brings a piece of text."""

    after_s: Seconds
    data: bytes
    is_content: bool = False
    then: Then = Then.GO_ON


def answer_steps(
    behaviour: Behaviour, says: CallSays, call: ServedCall, number: int
) -> Iterator[Step]:
    """The answer to a model's call of this number, from when it has a slot."""
    ending = behaviour.ending
    first_s = behaviour.first_s(number)
    match ending:
        case Ending.CLOSED:
            yield Step(first_s, b"", then=Then.CLOSE)
        case Ending.SILENT:
            yield Step(first_s, b"", then=Then.HANG)
        case Ending.NOT_HTTP:
            yield Step(first_s, b"SSH-2.0-OpenSSH_9.2\r\n\r\n", then=Then.CLOSE)
        case Ending.WRONG_TYPE:
            yield Step(first_s, _page(200, "text/html", b"<html>Welcome</html>", call))
        case _ if ending.status is not None:
            yield Step(first_s, refusal_page(ending.status, f"scripted {ending}", call))
        case _ if says.stream:
            yield from _stream(behaviour, says, call, first_s)
        case _:
            yield Step(first_s, _page(200, "application/json", _whole(behaviour, says), call), True)


def _stream(
    behaviour: Behaviour, says: CallSays, call: ServedCall, first_s: Seconds
) -> Iterator[Step]:
    head = _head(200, "text/event-stream", call, "Transfer-Encoding: chunked", behaviour.ending)
    waited_s = 0.0
    if behaviour.head_s is not None:
        yield Step(behaviour.head_s, head)
        waited_s, head = behaviour.head_s, b""
    if behaviour.role_chunk and says.messages is not None:
        head += chunk(event(_piece({"delta": {"role": "assistant", "content": ""}})))
    every_s = behaviour.keep_alive_s
    while every_s is not None and waited_s + every_s < first_s:
        yield Step(every_s, head + chunk(b": keep-alive\n\n"))
        waited_s, head = waited_s + every_s, b""
    pieces = list(_pieces(behaviour, says))
    shown = pieces[: len(pieces) // 2] if behaviour.ending in _HALF else pieces
    for index, piece in enumerate(shown):
        after_s = behaviour.next_s(index) if index else first_s - waited_s
        yield Step(after_s, head + chunk(event(piece)), True)
        head = b""
    yield _last(behaviour, says, head)


def _last(behaviour: Behaviour, says: CallSays, head: bytes) -> Step:
    """What comes after the pieces, at once."""
    match behaviour.ending:
        case Ending.HALF:
            return Step(0.0, head + chunk(b""))
        case Ending.RESET:
            return Step(0.0, head, then=Then.RESET)
        case Ending.HANGS:
            return Step(0.0, head, then=Then.HANG)
        case Ending.ERROR_EVENT:
            failed = event({"error": {"message": "scripted error", "code": 500}})
            return Step(0.0, head + chunk(failed) + chunk(b""))
        case Ending.BAD_JSON:
            return Step(0.0, head + chunk(b'data: {"choices": [{"delta\n\n') + chunk(b""))
        case Ending.ENDLESS_LINE:
            return Step(0.0, head + chunk(b"data: " + b"x" * 2**21), then=Then.HANG)
        case _:
            return Step(0.0, head + _end(behaviour, says) + chunk(b""))


def _end(behaviour: Behaviour, says: CallSays) -> bytes:
    """Reason, usage and `[DONE]`, as far as they are to come."""
    end = b""
    if behaviour.ending is not Ending.NO_REASON:
        said = {"delta": {}} if says.messages is not None else {"text": ""}
        end += chunk(event(_piece(said, "length")))
    if behaviour.usage and says.wants_usage:
        counts = _usage(says.tokens, details=behaviour.details)
        end += chunk(event({**_piece({"delta": {}}), "choices": [], "usage": counts}))
    if behaviour.ending not in (Ending.NO_DONE, Ending.NO_REASON):
        end += chunk(b"data: [DONE]\n\n")
    return end


def _pieces(behaviour: Behaviour, says: CallSays) -> Iterator[object]:
    """The chunks that have content."""
    left = says.tokens
    while left > 0:
        text = _WORD * min(behaviour.tokens_a_piece, left)
        left -= behaviour.tokens_a_piece
        if says.messages is None:
            yield _piece({"text": text})
        else:
            yield _piece(
                {"delta": {"reasoning_content" if behaviour.reasoning else "content": text}}
            )


def _whole(behaviour: Behaviour, says: CallSays) -> bytes:
    """The answer when it is not streamed."""
    text = _WORD * says.tokens
    said = {"text": text} if says.messages is None else {"message": {"content": text}}
    counts = {"usage": _usage(says.tokens, details=behaviour.details)} if behaviour.usage else {}
    return msgspec.json.encode({**_piece(said, "length"), **counts})


def _piece(said: Mapping[str, object], reason: str | None = None) -> dict[str, object]:
    kinds = {"delta": "chat.completion.chunk", "message": "chat.completion"}
    [kind] = [kinds.get(name, "text_completion") for name in said]
    choice = {"index": 0, **said, "finish_reason": reason}
    return {"id": "scripted", "object": kind, "created": 0, "model": "m", "choices": [choice]}


def _usage(tokens: int, *, details: bool) -> dict[str, object]:
    cached = {"prompt_tokens_details": {"cached_tokens": _CACHED_TOKENS}} if details else {}
    return {"prompt_tokens": _PROMPT_TOKENS, "completion_tokens": tokens, **cached}


# HTTP


def event(said: object) -> bytes:
    """A server-sent event."""
    return b"data: " + msgspec.json.encode(said) + b"\n\n"


def chunk(data: bytes) -> bytes:
    """A chunk of a body; without data it is the last."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def refusal_page(status: int, message: str, call: ServedCall | None = None) -> bytes:
    """An error as the API has them."""
    body = msgspec.json.encode({"error": {"message": message, "code": status}})
    return _page(status, "application/json", body, call)


def json_page(document: object) -> bytes:
    """Any JSON, with status 200."""
    return _page(200, "application/json", msgspec.json.encode(document), None)


def _page(status: int, kind: str, body: bytes, call: ServedCall | None) -> bytes:
    return _head(status, kind, call, f"Content-Length: {len(body)}") + body


def _head(
    status: int, kind: str, call: ServedCall | None, length: str, ending: Ending = Ending.WHOLE
) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", f"Content-Type: {kind}", length]
    if call is not None:
        lines.append(f"X-Request-Id: {call.request_id}")
    if ending is Ending.COMPRESSED:
        lines.append("Content-Encoding: gzip")
    return "\r\n".join([*lines, "", ""]).encode()
