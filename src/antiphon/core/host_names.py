"""Names of hosts, of the workers on them, and addresses: how they are spelled.

A host's name is a DNS label, for it stands in certificates. Its workers are called after it,
`box2.decode-0`: so nobody joins under the name of a worker on another host.
"""

import re
from collections.abc import Sequence
from ipaddress import ip_address

from antiphon.types import STORE, HostName, HostPort, Role, WorkerId

DEFAULT_PORT = 7400
MAX_ADDRESSES = 8
"""Paths to one host."""
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_DNS_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]{0,252}")
_NUMBERED = re.compile(r"(?:^|\.)[0-9]+\.?$", re.ASCII)
_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[^\s/:@\[\]]{1,253})(?::(\d{1,5}))?", re.ASCII)
_EXPECTED = re.compile(r"([a-z0-9-]{1,32})\.(prefill|decode|mixed)-(\d{1,3})", re.ASCII)


def is_host_name(text: str) -> bool:
    """Whether a host can be called so: lower-case letters, digits and dashes, at most 32."""
    return _HOST.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether it can be an IP address or a DNS name, without a port. No name ends in a number."""
    named = ":" not in text
    if named and not _NUMBERED.search(text):
        return _DNS_NAME.fullmatch(text) is not None
    try:
        return ip_address(text).version == (4 if named else 6) and "%" not in text
    except ValueError:
        return False


def is_loopback(address: str) -> bool:
    """Only this machine can reach it. A name other than localhost may resolve to anything."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def parse_host_port(text: str) -> tuple[str, int] | None:
    """Host and port of HOST:PORT, [IPv6]:PORT or HOST alone; None: it is none of these."""
    match = _HOST_PORT.fullmatch(text)
    if match is None or not is_address(match[1].strip("[]")):
        return None
    port = int(match[2]) if match[2] else DEFAULT_PORT
    return (match[1].strip("[]"), port) if 0 < port < 2**16 else None


def format_host_port(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 address; `parse_host_port` inverts it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def worker_on(host: HostName, name: str) -> WorkerId:
    """What the worker that its own host calls `decode-0` is called at a gateway elsewhere."""
    return WorkerId(f"{host}.{name}")


def is_worker_on(host: HostName, worker: WorkerId) -> bool:
    """Whether a worker of that host may be called so."""
    return worker.startswith(f"{host}.")


def store_on(host: HostName) -> WorkerId:
    """What a gateway elsewhere calls the store of that host."""
    return WorkerId(f"{host}.{STORE}")


def store_of(worker: WorkerId) -> WorkerId:
    """The store that this worker uses, if it uses any: that of its host."""
    host = worker.rpartition(".")[0]
    return store_on(host) if host else STORE


def is_store(holder: WorkerId) -> bool:
    """Whether it is the name of a store, which no worker has."""
    return holder == STORE or holder.endswith(f".{STORE}")


def parse_expected(name: str) -> tuple[HostName, Role] | None:
    """Host and role of a worker's name such as `box2.decode-0`; None: it is none."""
    match = _EXPECTED.fullmatch(name)
    if match is None or not is_host_name(match[1]):
        return None
    return match[1], Role(match[2])


def wrong_in_host_port(there: HostPort, field: str = "at") -> str:
    """What of the `field` that it is can't be; empty if all can."""
    if not is_host_name(there.host):
        return f"{field}.host {there.host!r:.80} is no name of a host"
    if not 1 <= len(there.addresses) <= MAX_ADDRESSES:
        return f"{field}.addresses: {len(there.addresses)}, from 1 to {MAX_ADDRESSES} can be"
    return _bad_address(there.addresses, field) or _bad_port(there.port, field)


def _bad_address(addresses: Sequence[str], field: str) -> str:
    for address in addresses:
        if not is_address(address):
            return f"{field}.addresses has {address!r:.80}"
    return ""


def _bad_port(port: int, field: str) -> str:
    return "" if 0 < port < 2**16 else f"{field}.port is {port}"
