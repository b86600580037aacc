"""Rules of the configuration's `[store_pool]`."""

from antiphon.errors import ConfigError
from antiphon.types import Config

from .host_names import is_host_name, is_loopback, parse_host_port
from .store_pool.peer_address import MOST_PEERS, parse_peer


def check_store_pool(config: Config) -> None:
    """Addresses are some, and nobody is reached over a network without keys. Raises
    `ConfigError`."""
    pool = config.store_pool
    if pool.name is not None and not is_host_name(pool.name):
        raise ConfigError(
            f"store_pool.name = {pool.name!r:.60}: lower-case letters, digits and dashes, at most "
            f"32"
        )
    _check_peers(pool.peers)
    if pool.level.startswith("entropy") and pool.profile is None:
        raise ConfigError(
            f"store_pool.level (--pool-level) = {pool.level} needs store_pool.profile "
            f"(--kv-profile): `antiphon kv profile MODEL -o FILE` makes one"
        )
    if pool.listen is None:
        if pool.peers:
            raise ConfigError(
                "store_pool.peers without store_pool.listen (--pool-listen): the others must "
                "reach this store, too"
            )
        return
    where = parse_host_port(pool.listen)
    if where is None:
        raise ConfigError(
            f"store_pool.listen = {pool.listen!r:.60}: must be HOST:PORT (--pool-listen), such as "
            f"127.0.0.1:7420"
        )
    if config.network.keys is not None:
        return
    if not is_loopback(where[0]):
        raise ConfigError(
            f"store_pool.listen = {pool.listen}: stores on other hosts need keys: set network.keys "
            f"(antiphon cluster keys), or listen on 127.0.0.1"
        )
    for text in pool.peers:
        peer = parse_peer(text)
        if peer is not None and not all(is_loopback(host) for host, _ in peer.paths):
            raise ConfigError(
                f"store_pool.peers has {text:.60}: stores on other hosts need keys: set "
                f"network.keys (antiphon cluster keys), or name stores on 127.0.0.1"
            )
    if pool.name is None:
        raise ConfigError(
            "store_pool.name (--pool-name): without network.keys a store in a pool needs a name"
        )


def _check_peers(peers: tuple[str, ...]) -> None:
    for text in peers:
        if parse_peer(text) is None:
            raise ConfigError(
                f"store_pool.peers has {text!r:.60}: a store is NAME@HOST:PORT, such as "
                f"box2@10.0.0.2:7420; several addresses of it are parted by commas"
            )
    names = [text.partition("@")[0] for text in peers]
    if len(set(names)) < len(names):
        raise ConfigError("store_pool.peers names a store twice")
    if len(peers) > MOST_PEERS:
        raise ConfigError(f"store_pool.peers: {len(peers)} stores, at most {MOST_PEERS} can be")
