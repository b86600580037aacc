"""What Prometheus may read of who reads KV from whom: links of workers, paths, pools of stores."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from antiphon.types import Member, PathState, PathUse, PeerState, PoolPeer

from .kv_metrics import KvSeen


class _Path(NamedTuple):
    reader: str
    owner: str
    use: PathUse


class _Peer(NamedTuple):
    store: str
    view: PoolPeer


_PATH_LABELS = ("model_name", "reader", "owner", "address")
_PEER_LABELS = ("model_name", "store", "peer")
_WORKING = (PathState.UNUSED, PathState.OPEN)

_Family = type[GaugeMetricFamily] | type[CounterMetricFamily]
_PATHS: tuple[tuple[_Family, str, str, Callable[[PathUse], float]], ...] = (
    (
        GaugeMetricFamily,
        "antiphon_path_up",
        "0 while a path to whom KV is read from rests, or is on trial.",
        lambda path: path.state in _WORKING,
    ),
    (
        GaugeMetricFamily,
        "antiphon_path_bytes_per_second",
        "How fast it was lately; 0: not known.",
        lambda path: path.bytes_per_s or 0.0,
    ),
    (
        CounterMetricFamily,
        "antiphon_path_bytes",
        "Bytes of KV that came over it.",
        lambda path: path.bytes_total,
    ),
    (
        CounterMetricFamily,
        "antiphon_path_failures",
        "Its connections that broke, stalled or could not be opened.",
        lambda path: path.failures_total,
    ),
)
_PEERS: tuple[tuple[_Family, str, str, Callable[[PoolPeer], float]], ...] = (
    (
        GaugeMetricFamily,
        "antiphon_pool_peer_up",
        "1 while a store reads from another one of its pool; 0: it is away, or rests.",
        lambda peer: peer.state is PeerState.HERE,
    ),
    (
        GaugeMetricFamily,
        "antiphon_pool_peer_blocks",
        "Blocks in that one's memory, as far as it has told.",
        lambda peer: peer.blocks,
    ),
    (
        CounterMetricFamily,
        "antiphon_pool_read_blocks",
        "Blocks that were read from it.",
        lambda peer: peer.read_blocks_total,
    ),
    (
        CounterMetricFamily,
        "antiphon_pool_read_bytes",
        "Their bytes.",
        lambda peer: peer.read_bytes_total,
    ),
    (
        CounterMetricFamily,
        "antiphon_pool_failed_reads",
        "Reads that brought less than was lent, or nothing in time.",
        lambda peer: peer.failed_reads_total,
    ),
)


def link_families(model: str, members: Sequence[Member], seen: KvSeen | None) -> Iterator[Metric]:
    """Every family is there always."""
    stores = {} if seen is None else seen.stores()
    yield _links(model, members)
    paths = [
        _Path(member.info.id, link.owner, use)
        for member in members
        for link in member.view.links or ()
        for use in link.paths
    ]
    peers = [_Peer(name, peer) for name, store in stores.items() for peer in store.pool]
    paths += [_Path(one.store, one.view.name, use) for one in peers for use in one.view.paths]
    for kind, name, text, of_path in _PATHS:
        family = kind(name, text, labels=_PATH_LABELS)
        for path in paths:
            labels = [model, path.reader, path.owner, path.use.address]
            family.add_metric(labels, of_path(path.use))
        yield family
    for kind, name, text, of_peer in _PEERS:
        family = kind(name, text, labels=_PEER_LABELS)
        for one in peers:
            family.add_metric([model, one.store, one.view.name], of_peer(one.view))
        yield family
    yield from _host_stores(model, seen)


def _links(model: str, members: Sequence[Member]) -> Metric:
    family = CounterMetricFamily(
        "antiphon_link_bytes",
        "Bytes of KV that a worker pulled from another one, by what brought them.",
        labels=("model_name", "worker", "role", "owner", "transport"),
    )
    for member in members:
        info = member.info
        for link in member.view.links or ():
            labels = [model, info.id, info.role.value, link.owner, link.transport.value]
            family.add_metric(labels, link.bytes_total)
    return family


def _host_stores(model: str, seen: KvSeen | None) -> Iterator[Metric]:
    hosts = {} if seen is None else dict(sorted(seen.hosts().items()))
    up = GaugeMetricFamily(
        "antiphon_host_store_up",
        "1 while the gateway is connected to the store of another host.",
        labels=("model_name", "host"),
    )
    blocks = GaugeMetricFamily(
        "antiphon_host_store_blocks",
        "Blocks on a tier of the store of another host.",
        labels=("model_name", "host", "tier"),
    )
    size = GaugeMetricFamily(
        "antiphon_host_store_bytes",
        "Bytes that they take.",
        labels=("model_name", "host", "tier"),
    )
    for host, store in hosts.items():
        up.add_metric([model, host], store.present)
        for tier in store.stats:
            blocks.add_metric([model, host, tier.tier.value], tier.blocks)
            size.add_metric([model, host, tier.tier.value], tier.used_bytes)
    yield from (up, blocks, size)
