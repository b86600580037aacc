"""A server to put load on: where it is, and what has to be said to it."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from antiphon.errors import UsageError
from antiphon.types import Seconds
from antiphon.workload import Api

_DEFAULT_PORTS = {"http": 80, "https": 443}
_ROUTES = {Api.CHAT: "/chat/completions", Api.COMPLETION: "/completions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server with an OpenAI API, and how it wants to be spoken to.

    `url` may end in `/v1` or not, and may have a path before it. `model` is for asks that name
    none. `extra_headers` and `extra_body` go with each call; the latter wins over what an ask says.
    `without` are fields of the body that this server refuses, as `probe` found out: they are not
    sent (instead of `max_tokens`, `max_completion_tokens` is). `root` is the API's root; empty:
    `url`, with `/v1` unless it ends so. Raises `UsageError` for what can't be a server.
    """

    url: str
    model: str = ""
    api_key: str | None = field(default=None, repr=False)
    verify_tls: bool = True
    extra_headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    root: str = ""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"{self.url!r} is no server: {error}") from None
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or port == 0:
            raise UsageError(
                f"{self.url!r} is no server: give it as http://HOST:PORT, or with https"
            )
        if parts.query or parts.fragment or parts.username:
            raise UsageError(
                f"{self.url!r}: a server's URL has no query, fragment or user; keys: api_key"
            )
        for name, value in self.headers().items():
            if not _is_header(name, value):
                raise UsageError(f"header {name!r} has characters that no header may have")
        if not self.root:
            url = self.url.rstrip("/")
            object.__setattr__(self, "root", url if url.endswith("/v1") else f"{url}/v1")

    @property
    def host(self) -> str:
        """Name or address, without brackets."""
        return urlsplit(self.root).hostname or ""

    @property
    def port(self) -> int:
        """The TCP port."""
        parts = urlsplit(self.root)
        return parts.port or _DEFAULT_PORTS[parts.scheme]

    def tls(self) -> ssl.SSLContext | None:
        """How its certificate is looked at; None: it is not spoken to over TLS."""
        if urlsplit(self.root).scheme != "https":
            return None
        context = ssl.create_default_context()
        if not self.verify_tls:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def path(self, api: Api) -> str:
        """What the first line of a call names."""
        return urlsplit(self.root).path + _ROUTES[api]

    def headers(self) -> dict[str, str]:
        """Headers of each call, beside those of HTTP itself."""
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {**key, **self.extra_headers}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """What the client takes at most. More is an error of the call that it happens to.

    `timeout_s` bounds each call as a whole; `drain_s` is how long a run waits for calls that are
    open after the last arrival. `max_open` is a safety valve: a call that is due while so many are
    open is not sent, and counted as the client's failure (`CallError.UNSENT`).
    """

    timeout_s: Seconds = 600.0
    drain_s: Seconds = 60.0
    max_open: int = 4096
    max_event_bytes: int = 2**20
    max_answer_bytes: int = 2**26

    def __post_init__(self) -> None:
        for name in ("timeout_s", "max_open", "max_event_bytes", "max_answer_bytes"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be above 0, not {getattr(self, name)}")
        if not self.drain_s >= 0:
            raise UsageError(f"drain_s must not be below 0, but it is {self.drain_s}")


def _is_header(name: str, value: str) -> bool:
    """By RFC 9110, 5.1 and 5.5; what is not Latin-1 can't be sent."""
    token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return token and value.isprintable() and value.isascii()
