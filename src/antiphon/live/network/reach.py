"""Which hosts this process can reach, and how: its keys, and what they open."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from antiphon.core.host_names import parse_host_port
from antiphon.errors import BugError, UsageError
from antiphon.types import HostName, HostPort, NetworkConfig, Seconds

from .dial import TlsAddress
from .host_keys import GATEWAY_NAME, HostKeys, read_host_keys, tls_name


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """This host among others. `server` is for those who come, `client` for where it goes."""

    keys: HostKeys
    network: NetworkConfig
    server: ssl.SSLContext
    client: ssl.SSLContext
    resting: dict[str, Seconds] = field(default_factory=dict)
    """Addresses of others that failed: see `TlsAddress`."""

    @property
    def host(self) -> HostName:
        """What this host is called."""
        return self.keys.host

    def gateway(self) -> TlsAddress:
        """Where the gateway of another host is joined."""
        paths = tuple(map(parse_host_port, self.network.join))
        if not paths or None in paths:
            raise BugError("network.join was not checked with the configuration")
        return TlsAddress(
            tuple(path for path in paths if path), GATEWAY_NAME, self.client, self.resting
        )

    def at(self, there: HostPort) -> TlsAddress:
        """Where a worker of another host is asked for what it offers."""
        paths = tuple((address, there.port) for address in there.addresses)
        return TlsAddress(paths, tls_name(there.host), self.client, self.resting)

    def own(self, port: int) -> HostPort:
        """Where others reach this host, on that port."""
        return HostPort(host=self.host, addresses=self.network.addresses, port=port)


def reach_of(network: NetworkConfig) -> Reach | None:
    """None: this host is alone. Raises `UsageError` if its keys will not do."""
    if network.keys is None:
        return None
    keys = read_host_keys(Path(network.keys))
    if not network.join and not keys.gateway:
        raise UsageError(
            f"keys {network.keys}: {keys.host} is no gateway's host: nobody would believe it. Use "
            f"the keys of the host that has gateway = true, or make them (antiphon cluster keys)"
        )
    return Reach(keys, network, keys.server(), keys.client())
