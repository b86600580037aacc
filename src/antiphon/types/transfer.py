"""How pages of a process on another host are read."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DataAccess:
    """What opens a server of pages. Secret: it travels on control streams only.

    `endpoints` are the server's addresses, "tcp://HOST:PORT": each is a path of its own. `key_id`
    has 16 bytes, `key` 32. `sealed`: all that passes is encrypted (AES-256-GCM).
    """

    endpoints: tuple[str, ...]
    key_id: bytes
    key: bytes = field(repr=False)
    sealed: bool = False
