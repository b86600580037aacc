"""From the bytes of a request to a checked model, with one decoding and one validation."""

import asyncio
from typing import TypeVar

import msgspec
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from antiphon.errors import ClientError

from .schema import Body
from .unsupported import reduce

Model = TypeVar("Model", bound=Body)

MAX_NESTED = 16_384
"""Objects, and entries of lists, within one field: enough for 4,096 messages of one part each.
Checking a body takes time in proportion, on the event loop."""
MAX_FIELDS = 1024
"""Fields of one object within a body."""
_CHEAP = frozenset({"prompt", "tokens", "metadata"})
"""Checked at the speed of reading whatever they hold."""

BODY_TIMEOUT_S = 60.0
"""A client that sends a byte a minute must not hold a connection and its memory for hours."""


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body. Raises `ClientError` 413 as soon as it passes `limit` bytes.

    Anything but `application/json` is a 415: a web page can make a browser post plain text to
    this server without asking, but not JSON.
    The declared length is checked first; a chunked body is counted while it comes in. A body that
    takes longer than `BODY_TIMEOUT_S` is a 408. Raises `ClientDisconnect` when the client leaves
    in the middle.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise ClientError(
            "Send the header Content-Type: application/json",
            field="content-type",
            status=415,
            code="unsupported_media_type",
        )
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await _read(request, limit)
    except TimeoutError:
        raise ClientError(
            f"The body did not come within {BODY_TIMEOUT_S:.0f} s", status=408, code="body_timeout"
        ) from None


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > limit):
        raise _too_large(limit)
    size = 0
    pieces: list[bytes] = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def parse(model: type[Model], raw: bytes) -> Model:
    """Decode and validate. Raises `ClientError` that names the first offending field.

    msgspec reads JSON as the standard has it: NaN and Infinity, invalid UTF-8, lone surrogates and
    bottomless nesting are malformed.
    """
    try:
        body = msgspec.json.decode(raw)
    except RecursionError:
        raise ClientError("The body is nested too deeply", code="invalid_json") from None
    except ValueError as problem:
        text = f"The body is not valid JSON: {problem}"
        raise ClientError(text[:256], code="invalid_json") from None
    if not isinstance(body, dict):
        raise ClientError("The body must be a JSON object", code="invalid_json")
    reduced = reduce(body, frozenset(model.model_fields))
    for field, value in reduced.items():
        if field not in _CHEAP:
            _check_nesting(field, value)
    try:
        return model.model_validate(reduced)
    except ValidationError as problem:
        raise first_problem(problem, reduced) from None


def _check_nesting(field: str, value: object) -> None:
    """Raises `ClientError` if there is too much in this field to look at each part of it."""
    todo, count = [value], 0
    while todo:
        inner = todo.pop()
        if isinstance(inner, dict):
            if len(inner) > MAX_FIELDS:
                text = f"{field} has an object of {len(inner)} fields: at most {MAX_FIELDS}"
                raise ClientError(text, field=field)
            count += 1
            todo += [item for item in inner.values() if isinstance(item, dict | list)]
        elif isinstance(inner, list):
            count += len(inner)
            if count <= MAX_NESTED:
                todo += [item for item in inner if isinstance(item, dict | list)]
        if count > MAX_NESTED:
            raise ClientError(f"{field} has more than {MAX_NESTED} parts in all", field=field)


def first_problem(problem: ValidationError, body: object) -> ClientError:
    """The first error as a `ClientError`; its field reads like `messages[0].content[1].type`."""
    error = problem.errors(include_url=False, include_context=False)[0]
    field = path(error["loc"], body)
    match error["type"]:
        case "missing":
            text = f"{field} is required"
        case "extra_forbidden":
            text = f"{field} is not a known field"
        case _:
            text = f"{field}: {error['msg']}".replace(": Input should be ", " must be ", 1)
    return ClientError(text, field=field)


def path(loc: tuple[int | str, ...], body: object) -> str:
    """A dotted path. Pydantic's `loc` also names union members: what is not in `body` is left out.

    The last step stays even if it is not there, since it may be what is missing.
    """
    steps: list[str] = []
    here = body
    for position, step in enumerate(loc):
        last = position == len(loc) - 1
        if isinstance(step, int) and isinstance(here, list):
            steps.append(f"[{step}]")
            here = here[step] if step < len(here) else None
        elif isinstance(step, str) and isinstance(here, dict) and (last or step in here):
            steps.append(f".{step}" if steps else step)
            here = here.get(step)
    return "".join(steps)


def _too_large(limit: int) -> ClientError:
    return ClientError(
        f"The body is larger than {limit} bytes", status=413, code="request_too_large"
    )
