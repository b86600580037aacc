"""How long the keys of a cluster's hosts are in force."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from antiphon.errors import UsageError
from antiphon.types import HostName

from .host_keys import CERTIFICATE_FILE, read_host_keys


def days_left(folder: Path, hosts: Mapping[HostName, bool]) -> dict[HostName, int]:
    """Days by host, of one host's folder or of one with a folder for each. `hosts` says which is
    the gateway's.

    Raises `UsageError`: keys are missing, don't fit or have expired, or are not what the host is.
    """
    alone = (folder / CERTIFICATE_FILE).exists()
    found: dict[HostName, int] = {}
    for name in [None] if alone else list(hosts):
        own = folder if name is None else folder / name
        keys = read_host_keys(own)
        if keys.host not in hosts or name not in (None, keys.host):
            raise UsageError(f"{own}: keys of host {keys.host}, which is another one, or unknown")
        if hosts[keys.host] and not keys.gateway:
            raise UsageError(
                f"{own}: keys of a host without gateway: remove them and make them anew "
                f"(antiphon cluster keys --gateway {keys.host})"
            )
        found[keys.host] = (keys.expires - datetime.now(UTC)).days
    return found
