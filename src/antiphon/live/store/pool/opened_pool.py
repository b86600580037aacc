"""A store's place in a pool, from its configuration: a port, a name, and keys."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from antiphon.core.host_names import parse_host_port
from antiphon.core.kv.lineage import ADAPTIVE
from antiphon.core.store_pool.peer_address import PeerAddress
from antiphon.core.tcp_endpoint import TcpEndpoint
from antiphon.errors import UsageError
from antiphon.live.network import HostKeys, read_host_keys
from antiphon.types import Config, Seconds, StoreName

from .block_coder import Coding
from .pool_dial import dial_by
from .pool_port import PoolPort
from .whereabouts import Whereabouts

_NO_ENTROPY = (
    "store_pool.level (--pool-level) = adaptive without store_pool.profile (--kv-profile): it "
    "chooses among raw, lossless, int8 and int4 only; `antiphon kv profile MODEL -o FILE` makes a "
    "profile, for smaller levels"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedPool:
    """The port where other stores come in, which is not open yet, and this store's own place."""

    port: PoolPort
    where: Whereabouts


def opened_pool(config: Config, *, clock: Callable[[], Seconds]) -> OpenedPool | None:
    """None: the store is to be in no pool. Raises `UsageError`: keys or a profile that will not do,
    or an address that can't be listened at."""
    pool = config.store_pool
    if pool.listen is None:
        return None
    listen = parse_host_port(pool.listen)
    if listen is None:
        raise UsageError(f"store_pool.listen = {pool.listen!r:.60}: must be HOST:PORT")
    coding = Coding.of(pool)
    if pool.level == ADAPTIVE and pool.profile is None:
        _log.warning(_NO_ENTROPY)
    coding.warm_up()
    keys = read_host_keys(Path(config.network.keys)) if config.network.keys else None
    name = _name(pool.name, keys)
    more = [other for other in config.network.addresses if keys and other != listen[0]]
    dial = dial_by(keys)
    port = PoolPort(listen, keys, config.cluster, more=more, clock=clock)
    addresses = config.network.addresses or (port.host,)
    where = Whereabouts(
        PeerAddress(name, port.host, port.port, tuple((other, port.port) for other in more)),
        data=tuple(str(TcpEndpoint(address, 0)) for address in addresses),
        sealed=keys is not None and config.network.encrypt_kv,
        here=keys is None,
        dial=dial,
        coding=coding,
    )
    return OpenedPool(port, where)


def _name(given: str | None, keys: HostKeys | None) -> StoreName:
    if keys is None:
        if given is None:
            raise UsageError("store_pool.name (--pool-name): a store in a pool needs a name")
        return StoreName(given)
    if given is not None and given != keys.host:
        raise UsageError(
            f"store_pool.name = {given}: the keys of network.keys are of {keys.host}, and others "
            f"believe no other name: leave it out"
        )
    return StoreName(keys.host)
