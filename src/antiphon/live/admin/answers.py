"""How admin routes read what they are sent, and answer."""

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from antiphon.errors import ClientError

Order = TypeVar("Order", bound=msgspec.Struct)


async def read_order(request: Request, kind: type[Order], max_body_bytes: int) -> Order:
    """The body. Raises `ClientError` if it is too long, or not what it should be."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_body_bytes:
            raise ClientError(f"the body is too long: at most {max_body_bytes} bytes", status=413)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ClientError(f"the body is not what it should be: {error}") from None


def json_answer(body: Any, status: int = 200) -> Response:
    """An answer of JSON."""
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def error_answer(status: int, message: str) -> Response:
    """A failure, for whoever asked."""
    return json_answer({"error": {"message": message}}, status)
