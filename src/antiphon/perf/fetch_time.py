"""How long KV takes from the store into a worker: implements `core.costs.FetchTime`."""

from dataclasses import dataclass

from antiphon.types import Seconds, Tier

from .transfer_time import LinkTime


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFetchTime:
    """Set-up and rate of each tier of the store, all the way into the worker's memory."""

    host: LinkTime
    disk: LinkTime
    remote: LinkTime

    def seconds(self, size_bytes: int, tier: Tier) -> Seconds:
        """Time to fetch that many bytes that lie on `tier`, set-up included; 0 for none."""
        if size_bytes <= 0:
            return 0.0
        match tier:
            case Tier.HOST:
                return self.host.seconds(size_bytes)
            case Tier.DISK:
                return self.disk.seconds(size_bytes)
            case Tier.REMOTE:
                return self.remote.seconds(size_bytes)
            case Tier.DEVICE:
                return 0.0  # it is there
