"""The rules that tie the keys of `[cluster]` and `[network]` together: part of `core.config`."""

from collections.abc import Iterable

from antiphon.errors import ConfigError
from antiphon.types import Config, NetworkConfig, Role

from .host_names import MAX_ADDRESSES, is_address, parse_expected, parse_host_port
from .number_text import number_text
from .worker_spec import MAX_WORKERS, mixed_workers, worker_count


def spans_hosts(network: NetworkConfig) -> bool:
    """Whether workers of this cluster are on other hosts than its gateway."""
    return bool(network.join or network.expected)


def check_cluster(config: Config) -> None:
    """There is a worker for each phase, a silence is longer than the beat that ends it, and other
    hosts are reached with keys only. Raises `ConfigError`."""
    cluster = config.cluster
    mixed = mixed_workers(cluster)
    if not cluster.decode + mixed and not spans_hosts(config.network):
        raise ConfigError(
            f"cluster.prefill = {cluster.prefill}, cluster.decode = 0, cluster.mixed = {mixed}: "
            f"nobody would decode: set cluster.decode (--decode) or cluster.mixed (--mixed)"
        )
    workers = worker_count(cluster) + len(config.network.expected)
    if workers > MAX_WORKERS:
        raise ConfigError(
            f"cluster: {workers} workers are too many: at most {MAX_WORKERS} in all "
            f"(cluster.prefill, cluster.decode, cluster.mixed)"
        )
    if cluster.lost_after_s < 2 * cluster.heartbeat_s:
        raise ConfigError(
            f"cluster.lost_after_s = {number_text(cluster.lost_after_s)}: must be at least twice "
            f"cluster.heartbeat_s = {number_text(cluster.heartbeat_s)}, or one late beat loses a "
            "worker"
        )
    _check_network(config)


def _check_network(config: Config) -> None:
    network = config.network
    if network.kv_transport == "nixl" and network.encrypt_kv:
        raise ConfigError(
            'network.kv_transport = "nixl": NIXL encrypts nothing, and all that reaches a worker '
            "over it may read and write the worker's memory. On a network that is yours alone, set "
            'network.encrypt_kv = false besides; on any other, kv_transport = "tcp"'
        )
    if network.keys is None:
        given = {
            "addresses": network.addresses,
            "join": network.join,
            "expected": network.expected,
            "kv_transport": network.kv_transport != "tcp",
        }
        for name, value in given.items():
            if value:
                raise ConfigError(
                    f"network.{name} is set, but network.keys is not: other hosts are reached with "
                    f"certificates only: make them (antiphon cluster keys) and set network.keys "
                    f"(--keys)"
                )
        return
    if not network.addresses:
        raise ConfigError(
            "network.keys is set, but network.addresses is not: say at which address of this host "
            "others reach it"
        )
    if len(network.addresses) > MAX_ADDRESSES:
        raise ConfigError(f"network.addresses: at most {MAX_ADDRESSES} can be")
    _check_each("network.addresses", network.addresses, is_address, "an address or a host's name")
    _check_each("network.join", network.join, parse_host_port, "HOST:PORT, such as 10.0.0.1:7400")
    _check_each("network.expected", network.expected, parse_expected, "HOST.ROLE-NUMBER")
    _check_ports(config)
    if config.planner.mode == "act" and spans_hosts(network):
        raise ConfigError(
            'planner.mode = "act": the planner can start and end workers of its own host only, '
            "and this cluster has several: leave it off"
        )


def _check_ports(config: Config) -> None:
    """Each worker has two of its own."""
    network = config.network
    first, workers = network.worker_port, worker_count(config.cluster)
    if first and first + 2 * workers > 2**16:
        raise ConfigError(
            f"network.worker_port = {first}: {workers} workers have two ports each from there on, "
            f"which is beyond 65535"
        )
    if first and not network.join and first <= network.port < first + 2 * workers:
        raise ConfigError(
            f"network.port = {network.port}: is one of the workers', which begin at "
            f"network.worker_port = {first}"
        )


def _check_each(key: str, values: Iterable[str], good: object, what: str) -> None:
    assert callable(good)
    for value in values:
        if not good(value):
            shown = value.encode("unicode_escape").decode()
            raise ConfigError(f'{key} has "{shown:.60}": must be {what}')


def expected_role(name: str) -> Role:
    """The role of a worker that is expected under that name."""
    expected = parse_expected(name)
    return Role.MIXED if expected is None else expected[1]
