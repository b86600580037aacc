"""The key that blocks on disk and in the remote tier are sealed with, read from its file."""

import binascii
from base64 import b64decode
from pathlib import Path

from antiphon.errors import ConfigError, UsageError
from antiphon.live.network.host_keys import check_secret
from antiphon.store.record.record_seal import KEY_BYTES

_MOST_BYTES = 4096
_MAKE_ONE = (
    'make one: (umask 077; python3 -c "import secrets; print(secrets.token_hex(32))" > FILE)'
)


def read_at_rest_key(path: Path) -> bytes:
    """The 32 bytes of the file: 64 hexadecimal digits, or base64.

    Raises `ConfigError`, without what is in it: others can read it, or it holds no such key.
    """
    where = f"store.at_rest_key_file (--store-key-file) {path}"
    try:
        with path.open("rb") as opened:
            check_secret(path)
            text = opened.read(_MOST_BYTES).strip()
    except OSError as error:
        raise ConfigError(f"{where}: can't be read ({error.strerror}); {_MAKE_ONE}") from None
    except UsageError as error:
        raise ConfigError(f"store.at_rest_key_file (--store-key-file): {error}") from None
    key = _decoded(text)
    if key is None:
        raise ConfigError(
            f"{where}: must hold {KEY_BYTES} bytes, as {2 * KEY_BYTES} hexadecimal digits or in "
            f"base64; {_MAKE_ONE}"
        )
    return key


def _decoded(text: bytes) -> bytes | None:
    """What the text stands for; None: no key. Hexadecimal digits of a key are no base64 of one."""
    for decode in (binascii.unhexlify, _base64):
        try:
            key = decode(text)
        except ValueError:
            continue
        if len(key) == KEY_BYTES:
            return key
    return None


def _base64(text: bytes) -> bytes:
    """Either alphabet, with its padding or without."""
    return b64decode(text + b"=" * (-len(text) % 4), altchars=_alphabet(text), validate=True)


def _alphabet(text: bytes) -> bytes:
    return b"-_" if b"-" in text or b"_" in text else b"+/"
