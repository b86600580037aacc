"""Redis or Valkey as the remote tier: each block one value."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from antiphon.errors import ConfigError, UsageError
from antiphon.types import Seconds

_SCHEMES = ("redis", "rediss", "unix")
_OPTIONS = ("db",)
_OPEN_TO_OTHERS = 0o077

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteLogin:
    """Who we are there. `user` None: the server's default one."""

    password: str = field(repr=False)
    user: str | None = None

    @classmethod
    def from_file(cls, path: Path) -> "RemoteLogin":
        """The file's only line is the password, or of two the first is the user.

        Raises `ConfigError`, without what is in it. Warns if others on this machine may read it.
        """
        where = f"store.remote_password_file {path}"
        try:
            lines = path.read_text("utf-8").splitlines()
            mode = path.stat().st_mode
        except (OSError, UnicodeDecodeError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else "it is no text"
            raise ConfigError(f"{where}: can't be read ({why})") from None
        if mode & _OPEN_TO_OTHERS:
            _log.warning("%s is open to other users: chmod 600 it", path)
        if len(lines) not in (1, 2) or not all(lines):
            raise ConfigError(f"{where}: must be one line, the password, or two, user and password")
        return cls(lines[-1], lines[0] if len(lines) == 2 else None)


class RedisValues:
    """Implements `RemoteValues` over one Redis. Connects with the first call, and again after any
    failure; nothing is retried. Whoever can write there can give us KV: it must be our own.
    """

    def __init__(
        self,
        url: str,
        login: RemoteLogin | None = None,
        *,
        timeout_s: Seconds = 0.5,
        ttl_s: Seconds | None = None,
    ) -> None:
        """`url`: redis://host:port/db, rediss:// (TLS) or unix:///path?db=0.

        `timeout_s`: silence after which a connection is given up. `ttl_s`: how long after they were
        written values go; None: when Redis needs room (its `maxmemory-policy`; allkeys-lru is
        best). Raises `UsageError`: a URL that can't be used, or the library is missing.
        """
        self._redis = _library()
        self._url = _checked(url)
        self._login = login
        self._timeout_s = timeout_s
        self._ttl_ms = None if ttl_s is None else max(1, round(ttl_s * 1000))
        self._client = self._new_client()

    def exists(self, names: Sequence[bytes]) -> Sequence[bool]:
        """See `RemoteValues`."""
        return [answer == 1 for answer in self._run([("EXISTS", name) for name in names])]

    def get(self, names: Sequence[bytes], most_bytes: int) -> Sequence[bytes | None]:
        """See `RemoteValues`. A value that is longer does not come over the network whole."""
        end = str(most_bytes - 1)
        answers = self._run([("GETRANGE", name, "0", end) for name in names])
        return [answer if isinstance(answer, bytes) and answer else None for answer in answers]

    def put(self, values: Sequence[tuple[bytes, bytes]]) -> Sequence[bool]:
        """See `RemoteValues`. A Redis that is full refuses values, and can be read all the same."""
        ttl = () if self._ttl_ms is None else ("PX", str(self._ttl_ms))
        commands = [("SET", name, value, *ttl) for name, value in values]
        return [answer is True for answer in self._run(commands, refusals=True)]

    def remove(self, names: Sequence[bytes]) -> None:
        """See `RemoteValues`."""
        self._run([("UNLINK", name) for name in names])

    def names(self, beginning: bytes, place: int) -> tuple[int, Sequence[bytes]]:
        """See `RemoteValues`."""
        pattern = re.sub(rb"([][*?\\^])", rb"\\\1", beginning) + b"*"
        [(following, found)] = self._run([("SCAN", str(place), "MATCH", pattern, "COUNT", "512")])
        return int(following), found

    def reset(self) -> None:
        """See `RemoteValues`."""
        spent, self._client = self._client, self._new_client()
        spent.connection_pool.disconnect()

    def _run(self, commands: Sequence[tuple[Any, ...]], *, refusals: bool = False) -> list[Any]:
        """What Redis answers, in one round trip; its errors too if `refusals` are wanted."""
        client = self._client
        try:
            with client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return pipeline.execute(raise_on_error=not refusals)
        except BaseException:
            client.connection_pool.disconnect()  # nobody must read what is left of this answer
            raise

    def _new_client(self) -> Any:
        return self._redis.Redis.from_url(
            self._url,
            username=self._login and self._login.user,
            password=self._login and self._login.password,
            protocol=2,
            socket_timeout=self._timeout_s,
            socket_connect_timeout=self._timeout_s,
            retry=import_module("redis.retry").Retry(import_module("redis.backoff").NoBackoff(), 0),
        )


def _library() -> Any:
    try:
        return import_module("redis")
    except ImportError:
        raise UsageError(
            "store.remote needs the redis library: pip install 'antiphon[redis]'"
        ) from None


def _checked(url: str) -> str:
    """The URL. What is said about it does not repeat it: it may hold a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        options = parse_qs(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise UsageError(f"store.remote is no URL: {error}") from None
    if parts.scheme not in _SCHEMES:
        raise UsageError(f"store.remote must begin with {', '.join(f'{s}://' for s in _SCHEMES)}")
    if "@" in url:
        raise UsageError(
            "store.remote holds a user or a password: they belong in store.remote_password_file"
        )
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise UsageError(f"store.remote has the option {unknown[0]!r}; only db is understood")
    if parts.scheme != "unix" and not parts.hostname:
        raise UsageError("store.remote names no host: redis://host:port/db")
    if parts.scheme != "unix" and not re.fullmatch(r"/?\d*", parts.path):
        raise UsageError(f"store.remote: {parts.path} is no number of a database")
    return url
