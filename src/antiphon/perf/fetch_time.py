"""How long KV takes from the store into a worker: implements `core.costs.FetchTime`."""

from dataclasses import dataclass

from antiphon.types import Seconds, Tier

from .transfer_time import LinkTime

PEER_LINK = LinkTime(setup_s=4e-3, bytes_per_s=1e9)
"""From another store's memory over a network of 10 Gbit/s, and on through the host's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFetchTime:
    """Set-up and rate of each tier of the store, all the way into the worker's memory."""

    host: LinkTime
    peer: LinkTime = PEER_LINK
    disk: LinkTime
    remote: LinkTime

    def seconds(self, size_bytes: int, tier: Tier) -> Seconds:
        """Time to fetch that many bytes that lie on `tier`, set-up included; 0 for none."""
        if size_bytes <= 0:
            return 0.0
        match tier:
            case Tier.HOST:
                return self.host.seconds(size_bytes)
            case Tier.PEER:
                return self.peer.seconds(size_bytes)
            case Tier.DISK:
                return self.disk.seconds(size_bytes)
            case Tier.REMOTE:
                return self.remote.seconds(size_bytes)
            case Tier.DEVICE:
                return 0.0  # it is there
