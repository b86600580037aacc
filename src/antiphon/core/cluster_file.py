"""`cluster.toml`: one file about several hosts, and what each host makes of it.

    [hosts.box1]  gateway = true, addresses, prefill = 1 …  ┐
    [hosts.box2]  addresses, cores, decode = 2 …            ├─► `on_host("box2")` ─► values for
    [[links]]     between, gbit_per_s, delay_ms             │                        `config.build`
    [model], [kv], [router] …                               ┘

All other tables are those of an ordinary configuration, and hold on every host. So one file is
copied to all of them, and nobody keeps two descriptions equal by hand.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Any

from antiphon.errors import ConfigError
from antiphon.types import HostName, Role

from .config import check_tables
from .host_names import (
    DEFAULT_PORT,
    MAX_ADDRESSES,
    format_host_port,
    is_address,
    is_host_name,
    worker_on,
)

MAX_HOSTS = 256
_MAX_LINKS = 4096
_ROLES = tuple(role.value for role in Role)
_HOST_KEYS = ("addresses", "cores", "gateway", "port", "worker_port", "store_port", *_ROLES)
_LINK_KEYS = ("between", "gbit_per_s", "delay_ms")
_FOLLOW = {
    "cluster": _ROLES,
    "engine": ("cores",),
    "network": (
        "addresses",
        "port",
        "worker_port",
        "join",
        "expected",
        "link_bytes_per_s",
        "link_delay_s",
    ),
    "store_pool": ("listen", "name", "peers"),
}
"""Keys that follow from the hosts, and so must not be set besides."""

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host of the cluster, as its table says. `workers`: how many of each role. `store_port`:
    where its store is one of the cluster's pool; 0: it is in none."""

    name: HostName
    addresses: tuple[str, ...]
    cores: tuple[object, ...]
    gateway: bool
    port: int
    worker_port: int
    store_port: int
    workers: Mapping[str, int]

    def names(self) -> Iterable[str]:
        """Its workers, as it calls them itself."""
        return (f"{role}-{n}" for role in _ROLES for n in range(self.workers[role]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What connects two hosts."""

    between: tuple[HostName, HostName]
    bytes_per_s: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The hosts of a file, and its other tables. Made by `parse`."""

    hosts: Mapping[HostName, Host]
    links: tuple[Link, ...]
    rest: Values

    @property
    def gateway(self) -> Host:
        """The host that all others join."""
        return next(host for host in self.hosts.values() if host.gateway)

    def on_host(self, name: HostName) -> dict[str, dict[str, Any]]:
        """The values that `core.config.build` takes on that host. Raises `ConfigError`: no such."""
        host = self.hosts.get(name)
        if host is None:
            raise ConfigError(f"there is no [hosts.{name:.40}]: known are {', '.join(self.hosts)}")
        gateway = self.gateway
        others = [other for other in self.hosts.values() if not other.gateway]
        made: dict[str, dict[str, Any]] = {
            "cluster": dict(host.workers),
            "engine": {"cores": host.cores} if host.cores else {},
            "network": {
                "addresses": host.addresses,
                "port": gateway.port,
                "worker_port": host.worker_port,
                "join": () if host.gateway else _at(gateway, gateway.port),
                "expected": tuple(worker_on(o.name, n) for o in others for n in o.names())
                if host.gateway
                else (),
                **self._link_times(),
            },
        }
        made |= self._store_on(host)
        values: dict[str, dict[str, Any]] = {}
        for table in dict.fromkeys((*self.rest, *made)):
            content = self.rest.get(table, {})
            if not isinstance(content, Mapping):
                raise ConfigError(f"[{table}]: must be a table of keys")
            values[table] = {**content, **made.get(table, {})}
        return values

    def _store_on(self, host: Host) -> dict[str, dict[str, Any]]:
        """Workers of a host use its store, if it has one; all such stores are one pool."""
        if not host.store_port:
            return {} if host.gateway else {"store": {"enabled": False}}
        others = [one for one in self.hosts.values() if one.store_port and one is not host]
        peers = [f"{one.name}@{','.join(_at(one, one.store_port))}" for one in others]
        listen = format_host_port(host.addresses[0], host.store_port)
        return {"store_pool": {"listen": listen, "peers": peers}}

    def _link_times(self) -> dict[str, float]:
        """The router knows one time for all transfers: that of the slowest link."""
        if not self.links:
            return {}
        return {
            "link_bytes_per_s": min(link.bytes_per_s for link in self.links),
            "link_delay_s": max(link.delay_s for link in self.links),
        }


def parse(values: Values) -> ClusterFile | None:
    """What a file says of hosts; None: nothing, it is about one host.

    Raises `ConfigError`, and nothing else, whatever it holds. Of other tables only the names are
    looked at: one that is misspelt may be what is missing here.
    """
    check_tables(values)
    if "hosts" not in values:
        if "links" in values:
            raise ConfigError("[[links]]: of no use without [hosts.…]")
        return None
    tables = _table("hosts", values["hosts"])
    if not 1 <= len(tables) <= MAX_HOSTS:
        raise ConfigError(f"[hosts]: has {len(tables)} hosts, from 1 to {MAX_HOSTS} can be")
    hosts = {name: _host(name, content) for name, content in tables.items()}
    gateways = [name for name, host in hosts.items() if host.gateway]
    if len(gateways) != 1:
        found = ", ".join(gateways) or "none"
        raise ConfigError(f"hosts: one must have gateway = true, and only one; here {found} has it")
    if not any(host.workers["decode"] + host.workers["mixed"] for host in hosts.values()):
        raise ConfigError("hosts: nobody would decode: give one of them decode or mixed workers")
    pooled = [name for name, host in hosts.items() if host.store_port]
    if pooled and not hosts[gateways[0]].store_port:
        raise ConfigError(
            f"hosts.{pooled[0]}.store_port: the gateway hears of the pool from the store beside "
            f"it: give hosts.{gateways[0]} a store_port, too"
        )
    _check_addresses(hosts)
    rest = {name: content for name, content in values.items() if name not in ("hosts", "links")}
    _check_not_set_twice(rest)
    return ClusterFile(hosts, _links(values.get("links", ()), hosts), rest)


def _host(name: str, content: object) -> Host:
    where = f"hosts.{name:.40}"
    if not is_host_name(name):
        raise ConfigError(
            f"[{where}]: a host's name has lower-case letters, digits and dashes, at most 32"
        )
    table = _known(where, _table(where, content), _HOST_KEYS)
    addresses = table.get("addresses", ())
    if not isinstance(addresses, list | tuple):
        raise ConfigError(f'{where}.addresses: must be a list of addresses, such as ["10.0.0.1"]')
    for one in addresses:
        if not isinstance(one, str) or not is_address(one):
            raise ConfigError(
                f"{where}.addresses has {one!r:.60}: must be an address or a host's name, such as "
                f'"10.0.0.1", without a port'
            )
    if not 1 <= len(addresses) <= MAX_ADDRESSES:
        raise ConfigError(
            f"{where}.addresses: has {len(addresses)}, from 1 to {MAX_ADDRESSES} can be"
        )
    cores = table.get("cores", ())
    if not isinstance(cores, list | tuple):
        raise ConfigError(f"{where}.cores: must be a list of core numbers")
    gateway = table.get("gateway", False)
    if not isinstance(gateway, bool):
        raise ConfigError(f"{where}.gateway: must be true or false")
    return Host(
        name=name,
        addresses=tuple(addresses),
        cores=tuple(cores),
        gateway=gateway,
        port=_whole(f"{where}.port", table.get("port", DEFAULT_PORT), 1, 65535),
        worker_port=_whole(f"{where}.worker_port", table.get("worker_port", 0), 0, 65535),
        store_port=_whole(f"{where}.store_port", table.get("store_port", 0), 0, 65535),
        workers={role: _whole(f"{where}.{role}", table.get(role, 0), 0, 256) for role in _ROLES},
    )


def _check_addresses(hosts: Mapping[HostName, Host]) -> None:
    """No two hosts are at one address, and nothing on a host has another's port."""
    owner: dict[str, HostName] = {}
    for host in hosts.values():
        for address in host.addresses:
            other = owner.setdefault(_spelled(address), host.name)
            if other != host.name:
                raise ConfigError(
                    f"hosts.{host.name}.addresses: {address} is an address of hosts.{other}, too"
                )
        _check_store_port(host)


def _check_store_port(host: Host) -> None:
    if not (at := host.store_port):
        return
    if host.gateway and at == host.port:
        raise ConfigError(f"hosts.{host.name}.store_port = {at}: is its port already")
    first, count = host.worker_port, 2 * sum(host.workers.values())
    if first and first <= at < first + count:
        raise ConfigError(
            f"hosts.{host.name}.store_port = {at}: is one of its workers', which begin at "
            f"worker_port = {first}"
        )


def _spelled(address: str) -> str:
    """In one way."""
    return str(ip_address(address)) if ":" in address else address.lower()


def _links(content: object, hosts: Mapping[HostName, Host]) -> tuple[Link, ...]:
    if not isinstance(content, list | tuple) or len(content) > _MAX_LINKS:
        raise ConfigError("links: must be tables, each headed [[links]]")
    links = tuple(_link(f"links[{n}]", one, hosts) for n, one in enumerate(content))
    seen: dict[frozenset[HostName], int] = {}
    for number, link in enumerate(links):
        first = seen.setdefault(frozenset(link.between), number)
        if first != number:
            raise ConfigError(
                f"links[{number}].between: links[{first}] is about "
                f"{' and '.join(link.between)} already: say it once"
            )
    return links


def _link(where: str, content: object, hosts: Mapping[HostName, Host]) -> Link:
    table = _known(where, _table(where, content), _LINK_KEYS)
    between = table.get("between", ())
    if not isinstance(between, list | tuple) or len(between) != 2 or between[0] == between[1]:
        raise ConfigError(f"{where}.between: must name two hosts")
    for name in between:
        if not isinstance(name, str) or name not in hosts:
            near = get_close_matches(str(name)[:40], hosts, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(hosts)}"
            raise ConfigError(f'{where}.between: there is no host "{name!s:.40}": {hint}')
    rate = _number(f"{where}.gbit_per_s", table.get("gbit_per_s"), 1e-3, 1e5)
    delay = _number(f"{where}.delay_ms", table.get("delay_ms", 0.5), 0.0, 1e4)
    return Link(between=(between[0], between[1]), bytes_per_s=rate * 1e9 / 8, delay_s=delay / 1e3)


def _at(host: Host, port: int) -> tuple[str, ...]:
    return tuple(format_host_port(address, port) for address in host.addresses)


def _check_not_set_twice(rest: Values) -> None:
    for table, names in _FOLLOW.items():
        content = rest.get(table)
        for name in names:
            if isinstance(content, Mapping) and name in content:
                raise ConfigError(
                    f"{table}.{name}: follows from [hosts.…] in a file that has them: say it there"
                )


def _known(where: str, table: Values, known: tuple[str, ...]) -> Values:
    for name in table:
        if name not in known:
            near = get_close_matches(name[:40], known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f'unknown key "{name:.40}" in [{where}]: {hint}')
    return table


def _table(where: str, content: object) -> Values:
    if not isinstance(content, Mapping) or not all(isinstance(name, str) for name in content):
        raise ConfigError(f"[{where}]: must be a table of keys")
    return content


def _whole(key: str, value: object, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(f"{key}: must be an integer from {low} to {high}")
    return value


def _number(key: str, value: object, low: float, high: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{key}: must be a number from {low:g} to {high:g}")
    return float(value)
