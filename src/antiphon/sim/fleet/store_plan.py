"""What KV stores a fleet has, as values."""

from dataclasses import dataclass
from enum import StrEnum

from antiphon.perf import LinkTime, TierFetchTime

LINK = LinkTime(setup_s=0.002, bytes_per_s=25e9)
SSD = LinkTime(setup_s=0.0002, bytes_per_s=3e9)


class Reach(StrEnum):
    """Who uses a host's memory."""

    FLEET = "fleet"
    """All hosts' memory is one pool: each worker fetches whatever any of them has."""
    HOST = "host"
    """The workers of the host alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """Memory of hosts that outlives workers, and an SSD behind it.

    Workers are on hosts in their order, `workers_per_host` on each, and each host gives equally
    much; one that has no room for a block gives none, and the fleet has no store. `link`: from the
    memory into a worker, and back, one after another for each worker. `ssd`: reads, and writes, of
    one host's, one after another.
    """

    host_bytes: int
    workers_per_host: int = 1
    reach: Reach = Reach.FLEET
    link: LinkTime = LINK
    ssd_bytes: int = 0
    ssd: LinkTime = SSD

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
        """What a router expects of a fetch: from an SSD all goes through memory."""
        link, ssd = self.link, self.ssd
        from_ssd = LinkTime(
            setup_s=link.setup_s + ssd.setup_s,
            bytes_per_s=1 / (1 / link.bytes_per_s + 1 / ssd.bytes_per_s),
        )
        return TierFetchTime(host=link, peer=link, disk=from_ssd, remote=from_ssd)
