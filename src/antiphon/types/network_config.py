"""Configuration of a cluster that spans several hosts: see `config`.

In a file with hosts (`cluster.toml`) these keys follow from `[hosts.…]`, but for `keys`,
`encrypt_kv` and `kv_transport`.
"""

from dataclasses import dataclass
from typing import Annotated

from .config_key import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """What is reached on other hosts, and how. Without keys nobody comes from there."""

    keys: Annotated[
        str | None,
        Key("Folder of this host's certificate and key, of `antiphon cluster keys` (--keys)."),
    ] = None
    addresses: Annotated[
        tuple[str, ...],
        Key("Addresses at which other hosts reach this one: a path each, in the order of use."),
    ] = ()
    port: Annotated[
        int, Key("TCP port on which the gateway is joined from other hosts.", 0, 65535)
    ] = 7400
    worker_port: Annotated[
        int,
        Key(
            "First port on which other hosts read this one's KV: two for each worker, one after "
            "the other; 0: any free ones.",
            0,
            65535,
        ),
    ] = 0
    encrypt_kv: Annotated[
        bool,
        Key(
            "Encrypt KV between hosts (AES-256-GCM); false: only on a network that is yours alone."
        ),
    ] = True
    kv_transport: Annotated[
        str,
        Key(
            "What brings KV from workers of other hosts: tcp, or nixl (RDMA) where both have it. "
            "nixl lets all that reaches a worker over it read and write its memory: it needs "
            "encrypt_kv = false, and pip install 'antiphon[nixl]'.",
            choices=("tcp", "nixl"),
        ),
    ] = "tcp"
    join: Annotated[
        tuple[str, ...],
        Key("HOST:PORT at which the gateway of another host is joined; empty: it is here."),
    ] = ()
    expected: Annotated[
        tuple[str, ...], Key("Workers that join from other hosts, such as box2.decode-0.")
    ] = ()
    link_bytes_per_s: Annotated[
        float | None,
        Key(
            "Bandwidth between hosts that the router counts with; without it: that of one host.",
            1e3,
            1e13,
        ),
    ] = None
    link_delay_s: Annotated[float, Key("Time one way between hosts, besides.", 0.0, 10.0)] = 0.0005
