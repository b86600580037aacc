"""Where a store of a pool is: NAME@HOST:PORT, such as box2@10.0.0.2:7420; with several addresses
NAME@HOST:PORT,HOST:PORT, each of which is a path."""

from dataclasses import dataclass

from antiphon.core.host_names import (
    MAX_ADDRESSES,
    format_host_port,
    is_host_name,
    parse_host_port,
)
from antiphon.types import StoreName

MOST_PEERS = 64
"""Of one store: each holds a stream to each."""


@dataclass(frozen=True, slots=True, order=True)
class PeerAddress:
    """A store's name, and where it listens; `more`: where else, if at several addresses."""

    name: StoreName
    host: str
    port: int
    more: tuple[tuple[str, int], ...] = ()

    @property
    def paths(self) -> tuple[tuple[str, int], ...]:
        """All of them, in the order of use."""
        return ((self.host, self.port), *self.more)

    def __str__(self) -> str:
        return f"{self.name}@{','.join(format_host_port(*path) for path in self.paths)}"


def parse_peer(text: str) -> PeerAddress | None:
    """What `text` spells; None: it is none. `str` inverts it."""
    name, at, where = text.partition("@")
    paths = [parse_host_port(one) for one in where.split(",")]
    found = [path for path in paths if path is not None]
    good = at and is_host_name(name) and len(found) == len(paths) <= MAX_ADDRESSES
    if not good:
        return None
    first, *more = found
    return PeerAddress(StoreName(name), *first, more=tuple(more))
