"""API keys: who may ask, and whose cache they share."""

import logging
import secrets
import stat
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from antiphon.errors import ClientError, ConfigError

_log = logging.getLogger(__name__)
_OPEN_TO_OTHERS = stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH
MAX_KEYS = 10_000
MAX_KEY_CHARS = 512


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who asks. `salt` goes into every block key, so that tenants never see each other's cache."""

    salt: bytes = b""


ANYONE = Tenant()
"""The one tenant of a server without keys."""


class Keyring:
    """The keys that open the API. Empty: no key is needed.

    Only digests are kept, under a secret of this process: how long a look-up takes tells nothing
    about how near a guess was, and takes no longer with many keys.
    """

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        self._secret = secrets.token_bytes(32)
        self._tenants = {
            _digest(key, b"api key", self._secret): Tenant(_digest(key, b"tenant")) for key in keys
        }

    def __len__(self) -> int:
        return len(self._tenants)

    @property
    def tenants(self) -> tuple[Tenant, ...]:
        """Whom the keys stand for, in the order in which they were given."""
        return tuple(self._tenants.values())

    @classmethod
    def from_file(cls, path: Path) -> "Keyring":
        """One key a line; empty lines and lines that start with # do not count.

        Raises `ConfigError` if the file can't be read, holds no key, or holds one that no HTTP
        header can carry. Warns if others on this machine may read it.
        """
        try:
            text = path.read_text("utf-8")
            mode = path.stat().st_mode
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(f"http.api_key_file {path}: can't be read ({problem})") from None
        if mode & _OPEN_TO_OTHERS:
            _log.warning("%s is open to other users: chmod 600 it", path)
        lines = (line.strip() for line in text.splitlines())
        keys = tuple(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
        if not keys:
            raise ConfigError(f"http.api_key_file {path}: holds no key (one a line)")
        if len(keys) > MAX_KEYS:
            raise ConfigError(f"http.api_key_file {path}: more than {MAX_KEYS} keys")
        for number, key in enumerate(keys, 1):
            if len(key) > MAX_KEY_CHARS or not key.isascii() or " " in key or not key.isprintable():
                raise ConfigError(
                    f"http.api_key_file {path}: key {number} must be at most {MAX_KEY_CHARS} "
                    "printable ASCII characters without spaces"
                )
        return cls(keys)

    def tenant(self, authorization: str | None) -> Tenant:
        """Whose request this is, by its `Authorization` header. Raises `ClientError` 401."""
        if not self._tenants:
            return ANYONE
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise _refused("Send an API key in the header: Authorization: Bearer KEY")
        found = self._tenants.get(_digest(key.strip(), b"api key", self._secret))
        if found is None:
            raise _refused("Incorrect API key")
        return found


def _digest(key: str, person: bytes, secret: bytes = b"") -> bytes:
    content = key.encode("utf-8", "replace")
    return blake2b(content, digest_size=32, person=person, key=secret).digest()


def _refused(message: str) -> ClientError:
    return ClientError(message, status=401, code="invalid_api_key")
