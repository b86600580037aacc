"""How pages of a process on another host are read."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMemory:
    """Where NIXL reads a server's pages. Secret: it opens that memory, to writers too.

    `metadata` is that of the server's NIXL agent. `generations_at` (uint64 a page) and `pages_at`
    are addresses in the server's process.
    """

    metadata: bytes = field(repr=False)
    generations_at: int
    pages_at: int
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataAccess:
    """What opens a server of pages. Secret: it travels on control streams only.

    `endpoints` are the server's addresses, "tcp://HOST:PORT": each is a path of its own. `key_id`
    has 16 bytes, `key` 32. `sealed`: all that passes is encrypted (AES-256-GCM). `memory`: where
    NIXL reads the same pages, if both sides have it.
    """

    endpoints: tuple[str, ...]
    key_id: bytes
    key: bytes = field(repr=False)
    sealed: bool = False
    memory: RemoteMemory | None = None
