"""Configuration of a store's part in a pool of stores: see `config`."""

from dataclasses import dataclass
from typing import Annotated

from .config_key import Key

LEVELS = (
    "raw",
    "lossless",
    "int8",
    "int4",
    *(f"entropy-{number}" for number in range(1, 6)),
    "adaptive",
)


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
        Key("Other stores, as NAME@HOST:PORT; who these know becomes known, too."),
    ] = ()
    link_bytes_per_s: Annotated[
        float,
        Key("Bandwidth between stores that is counted with until it was measured.", 1e3, 1e13),
    ] = 1.25e9
    most_copies: Annotated[
        int, Key("Copies of a block that is read often, beside the one at its home.", 0, 64)
    ] = 3
    level: Annotated[
        str,
        Key(
            "How blocks cross the network. raw and lossless are exact; the others, and adaptive "
            "(per chunk, from measured speeds), are lossy: all KV of such a deployment has other "
            "names, and answers no exact look-up.",
            choices=LEVELS,
        ),
    ] = "raw"
    profile: Annotated[
        str | None,
        Key("File of `antiphon kv profile`; entropy levels need it, adaptive uses it."),
    ] = None
