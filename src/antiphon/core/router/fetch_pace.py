"""How far the store is from its predicted speed, learned from the fetches that were routed here."""

from antiphon.core.costs import FetchTime
from antiphon.types import STORE, Seconds, Tier, WorkerId

_WEIGHT = 0.5
_LARGEST_MOVE = 8.0
"""One fetch counts as at most that far off: it moves the factor threefold."""
_FARTHEST = 256.0
_HALF_LIFE_S: Seconds = 60.0
"""What was learned fades: half of it, as a power of the factor, in that time. A tier that was too
slow to be worth a fetch is so tried again."""


class FetchPace:
    """`seconds` is the model's time by what was measured over it, tier by tier. Mutable.

    A store may say how long it takes to read from others: then that counts, and the way from its
    own memory, instead of the model's time for tier `peer`.
    """

    def __init__(self, times: FetchTime) -> None:
        self._times = times
        self._factors: dict[Tier, float] = {}
        self._faded_at: Seconds | None = None
        self._peer_byte_s: dict[WorkerId, Seconds] = {}

    def seconds(self, size_bytes: int, tier: Tier, store: WorkerId = STORE) -> Seconds:
        """Predicted time to fetch KV of that many bytes that lies on a tier of that store. Does not
        mutate."""
        return self._expected_s(size_bytes, tier, store) * self._factors.get(tier, 1.0)

    def told(self, store: WorkerId, byte_s: Seconds | None) -> None:
        """So long a byte of KV takes that store to read from others, however few bytes of it cross
        the network; None: it says so no more. What fetches have shown before is void. Mutates."""
        if self._peer_byte_s.get(store) == byte_s:
            return
        self._factors.pop(Tier.PEER, None)
        if byte_s is None:
            del self._peer_byte_s[store]
        else:
            self._peer_byte_s[store] = byte_s

    def _expected_s(self, size_bytes: int, tier: Tier, store: WorkerId) -> Seconds:
        byte_s = self._peer_byte_s.get(store) if tier is Tier.PEER else None
        if byte_s is None:
            return self._times.seconds(size_bytes, tier)
        return size_bytes * byte_s + self._times.seconds(size_bytes, Tier.HOST)

    def fade(self, now: Seconds) -> None:
        """Time has passed. Mutates."""
        if not self._factors:
            return
        if self._faded_at is not None and now > self._faded_at:
            power = 0.5 ** ((now - self._faded_at) / _HALF_LIFE_S)
            self._factors = {tier: factor**power for tier, factor in self._factors.items()}
        self._faded_at = now

    def observed(
        self, tier: Tier, predicted_s: Seconds, seconds: Seconds, *, whole: bool, now: Seconds
    ) -> None:
        """A fetch, most of whose time this tier takes, is over. Mutates.

        One that did not bring all (`whole`) says only that the tier is no faster than this; one
        that took long for that is believed at once: whoever waits for a deadline waits for nothing.
        """
        if predicted_s <= 0.0 or seconds <= 0.0:
            return
        off = seconds / predicted_s
        if whole:
            off = min(max(off, 1 / _LARGEST_MOVE), _LARGEST_MOVE) ** _WEIGHT
        elif off < 1.0:
            return
        factor = self._factors.get(tier, 1.0) * off
        self._factors[tier] = min(max(factor, 1 / _FARTHEST), _FARTHEST)
        if self._faded_at is None:
            self._faded_at = now
