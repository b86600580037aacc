"""`antiphon cluster check --dial`: who answers where, how soon, how fast, and at what time."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.core.cluster_file import ClusterFile, Host
from antiphon.core.host_names import format_host_port

from .progress import Progress

if TYPE_CHECKING:
    from antiphon.live.network.probe import Found

_NOTABLE_S = 1.0
"""A clock that differs by more is worth a word."""


class _Door(NamedTuple):
    """What listens at one address of a host, and the name that it must show."""

    what: str
    path: tuple[str, int]
    name: str


def dial_hosts(cluster: ClusterFile, keys: Path, rows: list[dict[str, Any]]) -> bool:
    """Call all hosts; each row gets what came of it (mutates). Whether somebody did not answer.

    With the keys in `keys`, or, if that has a folder for each host, those of the gateway's. Raises
    `UsageError` if they will not do.
    """
    from antiphon.live.network import TlsAddress, read_host_keys
    from antiphon.live.network.host_keys import CERTIFICATE_FILE
    from antiphon.live.network.probe import probe_each

    own = keys if (keys / CERTIFICATE_FILE).exists() else keys / cluster.gateway.name
    context = read_host_keys(own).client()
    silent = False
    with Progress() as progress:
        for row in rows:
            progress.say(f"Calling {row['host']}")
            doors = list(_doors(cluster.hosts[row["host"]]))
            addresses = [TlsAddress((door.path,), door.name, context) for door in doors]
            found = probe_each(addresses)
            row["dialed"] = [_as_row(*pair) for pair in zip(doors, found, strict=True)]
            silent |= any(one.problem for one in found)
    return silent


def _doors(host: Host) -> Iterator[_Door]:
    from antiphon.live.network import GATEWAY_NAME, tls_name

    for address in host.addresses:
        if host.gateway:
            yield _Door("gateway", (address, host.port), GATEWAY_NAME)
        if host.store_port:
            yield _Door("store", (address, host.store_port), tls_name(host.name))
        for number, worker in enumerate(host.names() if host.worker_port else ()):
            port = host.worker_port + 2 * number
            yield _Door(worker, (address, port), tls_name(host.name))


def _as_row(door: _Door, found: "Found") -> dict[str, Any]:
    trip_s, speed = found.round_trip_s, found.bytes_per_s
    return {
        "what": door.what,
        "address": format_host_port(*door.path),
        "problem": found.problem,
        "remedy": found.remedy,
        "round_trip_ms": None if trip_s is None else round(trip_s * 1e3, 3),
        "gbit_per_s": None if speed is None else round(speed * 8e-9, 3),
        "clock_ahead_s": found.clock_ahead_s,
        "summary": _summary(found),
    }


def _summary(found: "Found") -> str:
    if found.round_trip_s is None or found.bytes_per_s is None:
        return ": ".join(filter(None, (found.problem, found.remedy)))
    speed = f"at least {found.bytes_per_s * 8e-9:.2f} Gbit/s"
    text = f"answers in {found.round_trip_s * 1e3:.1f} ms, {speed}"
    ahead_s = found.clock_ahead_s or 0.0
    if abs(ahead_s) < _NOTABLE_S:
        return text
    return f"{text}; its clock is {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}"
