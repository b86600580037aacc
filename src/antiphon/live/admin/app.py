"""The admin routes, and what stands before them where others could reach them."""

import secrets
import stat
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from antiphon.errors import ClientError, ConfigError, PeerError
from antiphon.types import Role

from .answers import error_answer, json_answer, read_order
from .kv_desk import KvDesk
from .kv_routes import kv_routes
from .operations import Operations

PREFIX = "/admin/"
_MAX_BODY_BYTES = 4096
_MAX_TIMEOUT_S = 86400.0
_MIN_TOKEN_CHARS = 16
_MAX_TOKEN_CHARS = 512


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of what changes a worker; `role` belongs to `…/role` alone."""

    timeout_s: float
    role: Role | None = None


def admin_app(
    operations: Operations,
    kv: Callable[[], KvDesk | None] = lambda: None,
    *,
    max_body_bytes: int = 4 * 1024**2,
) -> Starlette:
    """Serves `operations` and, once it is there, what `kv` returns. It asks for no token: see
    `AdminGate`. `max_body_bytes`: of a body that may hold a prompt."""

    async def status(request: Request) -> Response:
        return json_answer(operations.status())

    async def change(request: Request) -> Response:
        order, name = await _order(request), request.path_params["worker"]
        match request.path_params["deed"], order.role:
            case "drain", None:
                return json_answer(await operations.drain(name, order.timeout_s))
            case "restart", None:
                return json_answer(await operations.restart(name, order.timeout_s))
            case "role", Role() as role:
                return json_answer(await operations.set_role(name, role, order.timeout_s))
            case _:
                raise ClientError("drain and restart take a timeout_s, role takes a role too")

    return Starlette(
        routes=[
            Route("/admin/status", status),
            Route("/admin/workers/{worker:path}/{deed}", change, methods=["POST"]),
            *kv_routes(kv, max_body_bytes),
        ],
        exception_handlers={ClientError: _client_error, PeerError: _peer_error},
    )


class AdminGate:
    """Sends `/admin/…` to the admin routes if the call has the token, and all else to the API.

    Without a token there are no admin routes here.
    """

    def __init__(self, api: ASGIApp, admin: ASGIApp, token: bytes | None) -> None:
        self._api = api
        self._admin = admin
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        inside = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        if not inside or self._token is None:
            await self._api(scope, receive, send)
            return
        given = Headers(scope=scope).get("authorization", "").removeprefix("Bearer ")
        if secrets.compare_digest(_digest(given.encode()), _digest(self._token)):
            await self._admin(scope, receive, send)
        else:
            refusal = error_answer(401, "The admin token is missing or wrong")
            await refusal(scope, receive, send)


def read_token(file: str) -> bytes:
    """The token of `http.admin_token_file`. Raises `ConfigError` if it is no good secret."""
    path = Path(file)
    try:
        token = path.read_bytes().strip()
        others = stat.S_IMODE(path.stat().st_mode) & 0o077
    except OSError as error:
        raise ConfigError(f'http.admin_token_file = "{file}": {error.strerror}') from None
    if others:
        raise ConfigError(f'http.admin_token_file = "{file}": others can read it: chmod 600 it')
    if not _MIN_TOKEN_CHARS <= len(token) <= _MAX_TOKEN_CHARS or len(token.split()) != 1:
        raise ConfigError(
            f'http.admin_token_file = "{file}": must hold one word of {_MIN_TOKEN_CHARS} to '
            f"{_MAX_TOKEN_CHARS} characters, such as `openssl rand -hex 32` prints"
        )
    return token


def _digest(token: bytes) -> bytes:
    """Of equal length whatever came: the comparison tells nothing about it."""
    return blake2b(token).digest()


async def _order(request: Request) -> Order:
    order = await read_order(request, Order, _MAX_BODY_BYTES)
    if not 0 <= order.timeout_s <= _MAX_TIMEOUT_S:
        raise ClientError(f"timeout_s must be from 0 to {_MAX_TIMEOUT_S:g}", field="timeout_s")
    return order


async def _client_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ClientError)
    return error_answer(error.status, error.message)


async def _peer_error(request: Request, error: Exception) -> Response:
    return error_answer(503, str(error))
