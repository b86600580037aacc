"""Configuration of a store's part in a pool of stores: see `config`."""

from dataclasses import dataclass
from typing import Annotated

from .config_key import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePoolConfig:
    """This host's store as one of a pool: what one has, workers beside the others can fetch."""

    listen: Annotated[
        str | None,
        Key("HOST:PORT at which other stores reach this one; without it: it is in no pool."),
    ] = None
    name: Annotated[
        str | None,
        Key("What this store is called in its pool; without it: its host's name in network.keys."),
    ] = None
    peers: Annotated[
        tuple[str, ...],
        Key(
            "Other stores, as NAME@HOST:PORT (several addresses: NAME@HOST:PORT,HOST:PORT); who "
            "these know becomes known, too."
        ),
    ] = ()
    link_bytes_per_s: Annotated[
        float,
        Key("Bandwidth between stores that is counted with until it was measured.", 1e3, 1e13),
    ] = 1.25e9
    most_copies: Annotated[
        int, Key("Copies of a block that is read often, beside the one at its home.", 0, 64)
    ] = 3
