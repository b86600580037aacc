"""How far the store is from its predicted speed, learned from the fetches that were routed here."""

from antiphon.core.costs import FetchTime
from antiphon.types import Seconds, Tier

_WEIGHT = 0.5
_LARGEST_MOVE = 8.0
"""One fetch counts as at most that far off: it moves the factor threefold."""
_FARTHEST = 256.0
_HALF_LIFE_S: Seconds = 60.0
"""What was learned fades: half of it, as a power of the factor, in that time. A tier that was too
slow to be worth a fetch is so tried again."""


class FetchPace:
    """`seconds` is the model's time by what was measured over it, tier by tier. Mutable."""

    def __init__(self, times: FetchTime) -> None:
        self._times = times
        self._factors: dict[Tier, float] = {}
        self._faded_at: Seconds | None = None

    def seconds(self, size_bytes: int, tier: Tier) -> Seconds:
        """Predicted time to fetch that many bytes from a tier. Does not mutate."""
        return self._times.seconds(size_bytes, tier) * self._factors.get(tier, 1.0)

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
