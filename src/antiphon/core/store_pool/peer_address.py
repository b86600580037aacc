"""Where a store of a pool is: NAME@HOST:PORT, such as box2@10.0.0.2:7420."""

from dataclasses import dataclass

from antiphon.core.host_names import format_host_port, is_host_name, parse_host_port
from antiphon.types import StoreName

MOST_PEERS = 64
"""Of one store: each holds a stream to each."""


@dataclass(frozen=True, slots=True, order=True)
class PeerAddress:
    """A store's name, and where it listens."""

    name: StoreName
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}@{format_host_port(self.host, self.port)}"


def parse_peer(text: str) -> PeerAddress | None:
    """What `text` spells; None: it is none. `str` inverts it."""
    name, at, where = text.partition("@")
    parsed = parse_host_port(where)
    if not at or not is_host_name(name) or parsed is None:
        return None
    return PeerAddress(StoreName(name), *parsed)
