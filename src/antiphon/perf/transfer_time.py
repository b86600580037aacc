"""How long KV takes from worker to worker: implements `core.costs.TransferTime`.

LinkTime              all of it once the prompt is computed
OverlappedTransfer    each layer as soon as it is computed; what the prefill does not hide
"""

from dataclasses import dataclass

from antiphon.core.costs import PhaseTime
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlappedTransfer:
    """What layer-wise transfer leaves exposed after the prefill (Splitwise, Patel 2024, §4.3).

    Layers are computed one after the other, each in an equal part of the prefill `p`; each goes
    over the link once it is computed and the one before it is over. With `x` for all bytes, that
    leaves after the last of `L` layers is computed

        set-up + x/L + max(0, (x − p)·(L − 1)/L)

    The bytes are taken for KV of a prompt that is computed for them, alone: a prompt that waits for
    others in its steps hides more. Prompts below `serial_tokens` are sent as a whole after their
    prefill, as Splitwise does: synchronising each layer would slow them down.

    Raises `ValueError` for counts below 1, or a negative `serial_tokens`.
    """

    link: LinkTime
    prefill: PhaseTime
    layers: int
    kv_bytes_per_token: float
    serial_tokens: int = 512

    def __post_init__(self) -> None:
        check_amount("kv_bytes_per_token", self.kv_bytes_per_token)
        check_amount("serial_tokens", self.serial_tokens)
        if self.layers < 1 or not self.kv_bytes_per_token:
            raise ValueError("layers must be at least 1, and kv_bytes_per_token above 0")

    def seconds(self, size_bytes: int) -> Seconds:
        """Time from the end of the prefill until all is there, set-up included."""
        link, layers = self.link, self.layers
        tokens = round(max(0, size_bytes) / self.kv_bytes_per_token)
        if tokens < self.serial_tokens:
            return link.seconds(size_bytes)
        all_s = link.seconds(size_bytes) - link.setup_s
        late_s = max(0.0, all_s - self.prefill.prefill_s(tokens))
        return link.setup_s + (all_s + late_s * (layers - 1)) / layers
