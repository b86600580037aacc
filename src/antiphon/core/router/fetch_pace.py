"""How far stores are from their predicted speed, learned from the fetches that were routed here."""

from dataclasses import dataclass

from antiphon.core.costs import FetchTime
from antiphon.types import STORE, Seconds, Tier, WorkerId

_WEIGHT = 0.5
_LARGEST_MOVE = 8.0
"""One fetch counts as at most that far off: it moves the factor threefold."""
_FARTHEST = 256.0
_HALF_LIFE_S: Seconds = 60.0
"""What was learned fades: half of it, as a power of the factor, in that time. A tier that was too
slow to be worth a fetch is so tried again."""
_FADED_S = 20 * _HALF_LIFE_S
"""After so long the largest factor is less than 10⁻⁵ from 1."""


@dataclass(frozen=True, slots=True)
class _Known:
    value: float
    at: Seconds

    def left(self, now: Seconds) -> float:
        """The share of it, as a power, that has not faded."""
        return 0.5 ** (max(0.0, now - self.at) / _HALF_LIFE_S)


class FetchPace:
    """`seconds` is the model's time by what was measured over it, for each tier of each store.
    Mutable.

    A store may say how long it takes to read from others: then that counts, and the way from its
    own memory, instead of the model's time for tier `peer`. If that is longer than the model's time
    it fades towards it: the store measures nothing while nothing is fetched, and would be believed
    for ever. What is shorter is fetched, and so measured.
    """

    def __init__(self, times: FetchTime) -> None:
        self._times = times
        self._now: Seconds = 0.0
        self._factors: dict[tuple[WorkerId, Tier], _Known] = {}
        self._peer_byte_s: dict[WorkerId, _Known] = {}

    def seconds(self, size_bytes: int, tier: Tier, store: WorkerId = STORE) -> Seconds:
        """Predicted time to fetch KV of that many bytes that lies on a tier of that store. Does not
        mutate."""
        return self._expected_s(size_bytes, tier, store) * self._factor(store, tier)

    def told(self, store: WorkerId, byte_s: Seconds | None, now: Seconds) -> None:
        """So long a byte of KV takes that store to read from others, however few bytes of it cross
        the network; None: it says so no more. What its fetches from others have shown before is
        void. Mutates."""
        self.fade(now)
        before = self._peer_byte_s.get(store)
        if byte_s == (None if before is None else before.value):
            return
        self._factors.pop((store, Tier.PEER), None)
        if byte_s is None:
            del self._peer_byte_s[store]
        else:
            self._peer_byte_s[store] = _Known(byte_s, self._now)

    def fade(self, now: Seconds) -> None:
        """Time has passed. Mutates."""
        self._now = max(self._now, now)

    def observed(
        self,
        tier: Tier,
        predicted_s: Seconds,
        seconds: Seconds,
        *,
        whole: bool,
        now: Seconds,
        store: WorkerId = STORE,
    ) -> None:
        """A fetch from that store, most of whose time this tier takes, is over. Mutates.

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
        self.fade(now)
        factor = min(max(self._factor(store, tier) * off, 1 / _FARTHEST), _FARTHEST)
        if (store, tier) not in self._factors:
            self._drop_faded()
        self._factors[store, tier] = _Known(factor, self._now)

    def _expected_s(self, size_bytes: int, tier: Tier, store: WorkerId) -> Seconds:
        model_s = self._times.seconds(size_bytes, tier)
        told = self._peer_byte_s.get(store) if tier is Tier.PEER else None
        if told is None:
            return model_s
        told_s = size_bytes * told.value + self._times.seconds(size_bytes, Tier.HOST)
        if told_s <= model_s:
            return told_s
        left = told.left(self._now)
        return told_s**left * model_s ** (1.0 - left)

    def _factor(self, store: WorkerId, tier: Tier) -> float:
        seen = self._factors.get((store, tier))
        return 1.0 if seen is None else seen.value ** seen.left(self._now)

    def _drop_faded(self) -> None:
        """Stores come and go."""
        self._factors = {
            name: seen for name, seen in self._factors.items() if self._now - seen.at < _FADED_S
        }
