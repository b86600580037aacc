"""How long KV takes from worker to worker: implements `core.costs.TransferTime`."""

from dataclasses import dataclass

from antiphon.types import Seconds

from .step_time import check_amount


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTime:
    """A fixed set-up (messages, reservation), then bytes at an even rate.

    Raises `ValueError` for a set-up that is negative, or a rate that is not above 0, or not finite.
    """

    setup_s: Seconds
    bytes_per_s: float

    def __post_init__(self) -> None:
        check_amount("setup_s", self.setup_s)
        check_amount("bytes_per_s", self.bytes_per_s)
        if not self.bytes_per_s:
            raise ValueError("bytes_per_s must be above 0")

    def seconds(self, size_bytes: int) -> Seconds:
        """Time to move that many bytes, set-up included."""
        return self.setup_s + max(0, size_bytes) / self.bytes_per_s
