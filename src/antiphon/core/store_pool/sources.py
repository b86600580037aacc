"""Whom to ask for a block that several peers have: whoever will have sent it first.

    expected time = (bytes that wait there for us + the block's) / speed that was seen lately

Speed is a moving average of what reads brought, per peer. A peer that fails is left alone for a
while (`core.tiers.breaker`), and so is one that is too slow: a read has a deadline of its own, a
few times what it should take, so that there is time left to ask somebody else. Where nothing is
known of a peer's speed its read has half of what the asker has left.

The least that is likely of a speed that this life of a peer has not shown: what an earlier life of
it has shown, else the slowest of the others, whose way may be the same; else a hundredth of what is
configured, which is about what networks differ by.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from antiphon.core.tiers.breaker import Breaker
from antiphon.types import Seconds, StoreName, Tier

from .pool_index import Holder

_WEIGHT = 0.25
"""Of the newest read in the average."""
_DISK_S = 0.005
"""A peer that has to read its disk first is asked after one that takes so much longer."""
_PATIENCE = 4.0
_LEAST_PATIENCE_S, _MOST_PATIENCE_S = 0.5, 5.0
_NETWORKS_DIFFER_BY = 100.0
_FAILURES, _FIRST_REST_S, _LONGEST_REST_S = 2, 0.5, 30.0


@dataclass(slots=True, eq=False)
class _Peer:
    bytes_per_s: float
    waiting_bytes: int = 0
    seen: bool = False
    """Whether that is more than a guess."""
    breaker: Breaker = field(
        default_factory=lambda: Breaker(
            failures=_FAILURES, first_s=_FIRST_REST_S, longest_s=_LONGEST_REST_S
        )
    )

    def saw(self, size_bytes: int, took_s: Seconds) -> None:
        if size_bytes and took_s > 0:
            seen = size_bytes / took_s
            self.bytes_per_s += (_WEIGHT if self.seen else 1.0) * (seen - self.bytes_per_s)
            self.seen = True


class Sources:
    """Mutable. `bytes_per_s` is taken for a peer's speed until one was seen."""

    def __init__(self, bytes_per_s: float) -> None:
        self._first_bytes_per_s = bytes_per_s
        self._peers: dict[StoreName, _Peer] = {}

    def choose(
        self, holders: Sequence[Holder], size_bytes: int, now: Seconds, tried: Collection[StoreName]
    ) -> Holder | None:
        """Whom to ask next for so much, of those that were not tried; None: nobody. Does not
        mutate but that a resting peer may be probed: its read must be `asked`."""
        for holder in self._soonest_first(holders, size_bytes):
            if holder.name not in tried and self._peer(holder.name).breaker.allows(now):
                return holder
        return None

    def likely(self, holders: Sequence[Holder], size_bytes: int, now: Seconds) -> Holder | None:
        """Whom `choose` would choose, as it seems now. Does not mutate."""
        by_time = self._soonest_first(holders, size_bytes)
        return next((one for one in by_time if not self.rests(one.name, now)), None)

    def rests(self, name: StoreName, now: Seconds) -> bool:
        """Whether nobody may ask that peer now. Does not mutate."""
        again_at = self._peer(name).breaker.ask_again_at()
        return again_at is not None and now < again_at

    def patience_s(self, name: StoreName, size_bytes: int, left_s: Seconds) -> Seconds:
        """How long a read of so much, beside what waits there, may take before it counts as failed,
        if it is asked for now and wanted in `left_s`. A speed that is only guessed may be a hundred
        times too high: then it has half of that."""
        peer = self._peer(name)
        if not peer.seen:
            return min(max(left_s / 2, _LEAST_PATIENCE_S), _MOST_PATIENCE_S)
        expected_s = (peer.waiting_bytes + size_bytes) / peer.bytes_per_s
        return min(max(_PATIENCE * expected_s, _LEAST_PATIENCE_S), _MOST_PATIENCE_S)

    def waiting_bytes(self, name: StoreName) -> int:
        """What was asked of that peer and has not ended."""
        return self._peer(name).waiting_bytes

    def bytes_per_s(self, name: StoreName) -> float:
        """As fast as it sends, as far as is known."""
        return self._peer(name).bytes_per_s

    def least_bytes_per_s(self, name: StoreName) -> float:
        """The least that is likely, without what this life of the peer has shown. Does not
        mutate."""
        peer = self._peers.get(name)
        if peer is not None and peer.seen:
            return peer.bytes_per_s
        others = [other.bytes_per_s for other in self._peers.values() if other.seen]
        return min(others, default=self._first_bytes_per_s / _NETWORKS_DIFFER_BY)

    def asked(self, name: StoreName, size_bytes: int) -> None:
        """A read begins, and ends with `came`, `missed` or `failed`. Mutates, as those do."""
        self._peer(name).waiting_bytes += size_bytes

    def turned_out(self, name: StoreName, size_bytes: int, really_bytes: int) -> None:
        """What was asked as `size_bytes` is another size: it ends with that one. Mutates."""
        peer = self._peer(name)
        peer.waiting_bytes = max(0, peer.waiting_bytes + really_bytes - size_bytes)

    def came(self, name: StoreName, size_bytes: int, took_s: Seconds) -> None:
        """It brought all of that; `took_s`: moving it alone, not what came before and after."""
        peer = self._ended(name, size_bytes)
        peer.breaker.succeeded()
        peer.saw(size_bytes, took_s)

    def missed(self, name: StoreName, size_bytes: int) -> None:
        """The peer answered that it has not got it: no failure, it was let go meanwhile."""
        self._ended(name, size_bytes).breaker.succeeded()

    def failed(
        self,
        name: StoreName,
        size_bytes: int,
        now: Seconds,
        *,
        came_bytes: int = 0,
        took_s: Seconds = 0.0,
    ) -> None:
        """It broke, took too long, or brought something else; what came all the same says how fast
        it is, so that the next read is given the time that it needs."""
        peer = self._ended(name, size_bytes)
        peer.breaker.failed(now)
        peer.saw(came_bytes, took_s)

    def forget(self, name: StoreName) -> None:
        """That life of the peer is over: the next one begins without its faults, and with its
        speed. What it was asked ends with `failed` all the same."""
        peer = self._peers.get(name)
        if peer is not None:
            self._peers[name] = _Peer(peer.bytes_per_s, peer.waiting_bytes, peer.seen)

    def drop(self, name: StoreName) -> None:
        """That peer is not known any more. Mutates."""
        self._peers.pop(name, None)

    def _soonest_first(self, holders: Sequence[Holder], size_bytes: int) -> Sequence[Holder]:
        return sorted(holders, key=lambda one: (self._expected_s(one, size_bytes), one))

    def _ended(self, name: StoreName, size_bytes: int) -> _Peer:
        peer = self._peer(name)
        peer.waiting_bytes = max(0, peer.waiting_bytes - size_bytes)
        return peer

    def _expected_s(self, holder: Holder, size_bytes: int) -> Seconds:
        peer = self._peer(holder.name)
        disk_s = _DISK_S if holder.tier is Tier.DISK else 0.0
        return disk_s + (peer.waiting_bytes + size_bytes) / peer.bytes_per_s

    def _peer(self, name: StoreName) -> _Peer:
        if name not in self._peers:
            self._peers[name] = _Peer(self._first_bytes_per_s)
        return self._peers[name]
