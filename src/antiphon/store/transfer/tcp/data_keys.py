"""Who may read over data sockets: a key for each taker, for as long as its control stream lives."""

import secrets
import threading
from collections.abc import Callable

from antiphon.errors import BugError

KEY_BYTES = 32
KEY_ID_BYTES = 16
MOST_KEYS = 4096

Key = tuple[bytes, bytes]
"""Its id, which is no secret, and itself."""


class DataKeys:
    """The keys that open one server. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[bytes, bytes] = {}
        self._on_revoked: list[Callable[[bytes], None]] = []

    def __len__(self) -> int:
        """Keys that open something."""
        return len(self._keys)

    def new(self) -> Key:
        """A key for one taker. Raises `BugError` if nobody ever revokes any."""
        key_id, key = secrets.token_bytes(KEY_ID_BYTES), secrets.token_bytes(KEY_BYTES)
        self.add(key_id, key)
        return key_id, key

    def add(self, key_id: bytes, key: bytes) -> None:
        """A key from elsewhere. Raises `BugError` unless its sizes are right."""
        if (len(key_id), len(key)) != (KEY_ID_BYTES, KEY_BYTES):
            raise BugError(f"a data key has {KEY_BYTES} bytes and an id of {KEY_ID_BYTES}")
        with self._lock:
            if len(self._keys) >= MOST_KEYS:
                raise BugError(f"there are {MOST_KEYS} data keys already")
            self._keys[key_id] = key

    def key(self, key_id: bytes) -> bytes | None:
        """The key of this id, if it still opens anything."""
        with self._lock:
            return self._keys.get(key_id)

    def revoke(self, key_id: bytes) -> None:
        """Its connections end, and there are no new ones."""
        with self._lock:
            self._keys.pop(key_id, None)
            heard = list(self._on_revoked)
        for tell in heard:
            tell(key_id)

    def on_revoked(self, tell: Callable[[bytes], None]) -> None:
        """`tell` is called with the id of each key that is revoked."""
        with self._lock:
            self._on_revoked.append(tell)
