"""What KV stores a fleet has, as values."""

from dataclasses import dataclass
from enum import StrEnum

from antiphon.perf import LinkTime, TierFetchTime

LINK = LinkTime(setup_s=0.002, bytes_per_s=25e9)
NETWORK = LinkTime(setup_s=0.001, bytes_per_s=12.5e9)
SSD = LinkTime(setup_s=0.0002, bytes_per_s=3e9)


class Reach(StrEnum):
    """Who uses a host's memory."""

    FLEET = "fleet"
    """All hosts' memory is one store, as near to each worker as to any other: a bound."""
    POOL = "pool"
    """Each host has a store, and they form a pool: a worker fetches through its own host's store
    what any of them has, over the network between hosts."""
    HOST = "host"
    """The workers of the host alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """Memory of hosts that outlives workers, and an SSD behind it.

    Workers are on hosts in their order, `workers_per_host` on each, and each host gives equally
    much; one that has no room for a block gives none, and the fleet has no store. `link`: from the
    memory into a worker, and back, one after another for each worker. `ssd`: reads, and writes, of
    one host's, one after another. `network`: between the stores of a pool, one after another for
    each host and way.
    """

    host_bytes: int
    workers_per_host: int = 1
    reach: Reach = Reach.FLEET
    link: LinkTime = LINK
    ssd_bytes: int = 0
    ssd: LinkTime = SSD
    network: LinkTime = NETWORK

    def stores(self, workers: int) -> int:
        """How many stores so many workers see between them."""
        return 1 if self.reach is Reach.FLEET else self.hosts(workers)

    def hosts(self, workers: int) -> int:
        """How many hosts so many workers are on."""
        return -(-workers // self.workers_per_host)

    def hosts_a_store(self, workers: int) -> int:
        """How many hosts' memory makes up one store."""
        return self.hosts(workers) // self.stores(workers)

    def has_room(self, block_bytes: int) -> bool:
        """Whether a host has room for a block."""
        return self.host_bytes >= block_bytes

    @property
    def fetch_time(self) -> TierFetchTime:
        """What a router expects of a fetch: from an SSD, and from another host, all goes through
        memory."""
        from_ssd = _one_after_another(self.ssd, self.link)
        from_peer = _one_after_another(self.network, self.link)
        return TierFetchTime(host=self.link, peer=from_peer, disk=from_ssd, remote=from_ssd)


def _one_after_another(first: LinkTime, then: LinkTime) -> LinkTime:
    return LinkTime(
        setup_s=then.setup_s + first.setup_s,
        bytes_per_s=1 / (1 / then.bytes_per_s + 1 / first.bytes_per_s),
    )
