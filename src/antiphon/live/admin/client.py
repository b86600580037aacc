"""Asks a running server, on this machine or by its address; loads nothing heavy."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from antiphon.errors import PeerError, UsageError
from antiphon.live.local_servers import LocalServer, running_servers

SOCKET = "admin.sock"
"""The admin socket's name in the folder of a cluster's sockets."""
_CONNECT_TIMEOUT_S = 5.0
_MAX_ANSWER_BYTES = 16 * 1024**2


class AdminClient:
    """One server. `token` goes with every call over TCP."""

    def __init__(self, connection: http.client.HTTPConnection, token: str | None = None) -> None:
        self._connection = connection
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str) -> Any:
        """The JSON at `path`. Raises as `order`."""
        return self._ask("GET", path, None, 2 * _CONNECT_TIMEOUT_S)

    def order(self, worker: str, deed: str, timeout_s: float, **more: str) -> Any:
        """Have something done with a worker, and wait until it is.

        Raises `UsageError` if it can't be as asked, `PeerError` if the server is not there or
        failed at it.
        """
        path = f"/admin/workers/{quote(worker, safe='')}/{deed}"
        return self._ask("POST", path, {"timeout_s": timeout_s, **more}, None)

    def post(self, path: str, body: object, timeout_s: float) -> Any:
        """What `path` answers within `timeout_s` and a moment. Raises as `order`."""
        return self._ask("POST", path, body, timeout_s + 2 * _CONNECT_TIMEOUT_S)

    def _ask(self, method: str, path: str, body: object, timeout_s: float | None) -> Any:
        content = None if body is None else json.dumps(body)
        connection = self._connection
        try:
            connection.timeout = _CONNECT_TIMEOUT_S
            connection.connect()
            connection.sock.settimeout(timeout_s)
            connection.request(method, path, content, self._headers)
            response = connection.getresponse()
            answer = response.read(_MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise PeerError(
                f"the server does not answer ({error or type(error).__name__}): is it running?"
            ) from None
        finally:
            connection.close()
        return _content(response.status, answer)


def find_server(url: str | None, token_file: Path | None) -> AdminClient:
    """The server at `url`, or without it the only one of this user on this machine.

    A local one is reached by its socket, which needs no token. Raises `UsageError` if there are
    several, or the token can't be read, `PeerError` if there is none.
    """
    servers = running_servers()
    if url is None:
        if not servers:
            raise PeerError(
                "no server of yours runs on this machine: start one with `antiphon serve`, or "
                "name one with --url"
            )
        only, *others = servers
        if others:
            known = ", ".join(f"{server.url} (pid {server.pid})" for server in servers)
            raise UsageError(f"several servers run here: choose one with --url: {known}")
        return AdminClient(_UnixConnection(_admin_socket(only)))
    connection = _tcp(url)
    for server in servers:
        if token_file is None and same_place(url, server.url):
            return AdminClient(_UnixConnection(_admin_socket(server)))
    if token_file is None:
        raise UsageError(
            f"{url} is no server of yours on this machine: give the file of its admin token with "
            f"--token-file (the server's http.admin_token_file)"
        )
    return AdminClient(connection, _token(token_file))


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        """See `HTTPConnection`."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _admin_socket(server: LocalServer) -> Path:
    return Path(server.sockets) / SOCKET


def _tcp(url: str) -> http.client.HTTPConnection:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f'--url "{url}": {error}') from None
    if not host or parts.scheme not in ("http", "https") or parts.path not in ("", "/"):
        raise UsageError(f'--url "{url}": must be an address such as http://127.0.0.1:8000')
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, port)
    return http.client.HTTPConnection(host, port)


def same_place(url: str, local: str) -> bool:
    """Both are addresses of one local server."""

    def normal(text: str) -> str:
        return text.rstrip("/").replace("//localhost:", "//127.0.0.1:")

    return normal(url) == normal(local)


def _token(file: Path) -> str:
    try:
        token = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {file}: can't be read ({error})") from None
    if len(token.split()) != 1:
        raise UsageError(f"--token-file {file}: must hold one word, the admin token")
    return token


def _content(status: int, answer: bytes) -> Any:
    try:
        content: Any = json.loads(answer)
    except ValueError:
        content = None
    if status == 200 and content is not None:
        return content
    match content:
        case {"error": {"message": str() as message}}:
            pass
        case _:
            message = f"status {status}"
    match status:
        case 401:
            raise UsageError(f"the server refused: {message} (--token-file)")
        case 404 if content is None or "such path" in message:
            raise UsageError("the server has no admin routes there: see http.admin_token_file")
        case 400 | 404 | 413:
            raise UsageError(message)
        case _:
            raise PeerError(message)
