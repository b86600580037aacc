"""The outermost layer of the HTTP side: request ids, API keys, counting, and the last resort."""

import re
import secrets
import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antiphon.core.host_names import is_loopback
from antiphon.errors import BugError, ClientError

from .auth import Keyring
from .errors import CLIENT_GONE, INTERNAL, from_client_error
from .failure_log import FailureLog

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}\Z")
_PORT = re.compile(r":\d*\Z")
_OPEN_PATHS = frozenset({"/", "/health", "/ready", "/version", "/docs", "/openapi.json"})
"""What needs no key: it tells nothing about tenants. `/metrics` does, so it needs one."""
DOCS_ASSETS = "/docs-assets"
"""Scripts and styles of `/docs`: they need no key either."""


class Boundary:
    """ASGI middleware around everything else.

    Every response carries `X-Request-Id`: the caller's, if it is short and plain, else a new one.
    An exception that nobody expected becomes a bare 500; its traceback goes to the log under that
    id. The process survives what one request does to it, but for a `BugError`: that one is also
    given to `on_bug`. `scope["state"]` gets `request_id` and `tenant`. Without keys, the `Host`
    header must name this machine.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keyring,
        count: Callable[[str, int], None],
        on_bug: Callable[[BugError], None],
    ) -> None:
        self._app = app
        self._keys = keys
        self._count = count
        self._on_bug = on_bug
        self._failures = FailureLog(time.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event; only HTTP is looked at."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not _SANE_ID.match(request_id):
            request_id = secrets.token_hex(16)
        status = CLIENT_GONE

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            state = scope.setdefault("state", {})
            state["request_id"] = request_id
            if not self._keys:
                _check_host(headers.get("host", ""))
            if not _is_open(scope["path"]):
                state["tenant"] = self._keys.tenant(headers.get("authorization"))
            await self._app(scope, receive, send_marked)
        except ClientError as refusal:
            await from_client_error(refusal).response()(scope, receive, send_marked)
        except Exception as error:
            self._failures.write(request_id, error)
            if isinstance(error, BugError):
                self._on_bug(error)
            if status != CLIENT_GONE:
                raise
            await INTERNAL.response()(scope, receive, send_marked)
        finally:
            route = scope.get("route")
            self._count(getattr(route, "path", "unmatched"), status)


def _check_host(host: str) -> None:
    """Raise `ClientError` 421 unless a call to a server without keys names this very machine.

    Such a server trusts whoever is on the machine, and a web page in a browser here is not: its
    author can let the name of the page's host point to 127.0.0.1, and then read the answers.
    """
    name = _PORT.sub("", host).strip("[]").removesuffix(".").lower()
    if name and name != "localhost" and not is_loopback(name):
        raise ClientError(
            f"This server has no API keys and answers only to localhost and loopback addresses, "
            f"not to {host[:128]!r}: start it with --api-key-file",
            field="host",
            status=421,
            code="unknown_host",
        )


def _is_open(path: str) -> bool:
    return path in _OPEN_PATHS or path.startswith(f"{DOCS_ASSETS}/")
