"""One node's part in a pool of stores: what it knows of the others, and what follows from that.

    a worker puts a block ──► here ──► placing ──► its home pulls it ──► the copy here is a replica
    a worker wants one    ──► here? ──► a peer that has it (sources) ──► the remote tier ──► a miss

No node is special. Each tells all others which blocks it holds (numbered changes of one life, as to
a gateway), so that each has the same index after quiet. Where a *cold* block lives follows from its
key and who is there (`rendezvous`), but where it is *read* follows from the index: a block that is
not at its home is found all the same, so that joins, leaves and crashes need move nothing in haste.

Laws, for any order of joins, leaves, crashes, and messages that are lost, late and repeated:

* the index equals what the peers hold, once all is heard;
* nothing is expected of a life that is over; a lost node is a miss;
* a block that nobody else has never goes before a copy of one that somebody has;
* a node that comes is told of the blocks that it is home to now, and of no other; nobody else's
  blocks move.

Whatever `review` has not looked at yet is right in the index already; only what is said of it, and
done about it, comes later: a bounded number of blocks at a time.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from antiphon.types import (
    BlockKey,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    KvReplay,
    Seconds,
    StoreName,
    Tier,
)

from .heat import Heat
from .placing import Placing
from .pool_index import Holder, PoolIndex
from .pool_members import PoolMembers, PoolNode
from .replicas import ReplicaRules, Replicas
from .sources import Sources

HALF_LIFE_S = 60.0
HOT_SHARE = 0.001
"""Of a node's bandwidth: a block whose reads would take more is hot."""
MOST_COPIES = 3
REVIEWED_AT_ONCE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """`bytes_per_s`: what the network brings a node, as far as nothing was measured."""

    block_bytes: int
    bytes_per_s: float
    most_copies: int = MOST_COPIES
    hot_share: float = HOT_SHARE
    half_life_s: Seconds = HALF_LIFE_S

    @property
    def hot_per_s(self) -> float:
        """Reads a second from which on a block is hot."""
        return self.hot_share * self.bytes_per_s / self.block_bytes


class StorePool:
    """Of one life of a node. Mutable, pure. `listen` hears of each block that peers have from now
    on, or have no more, as one of tier `peer`."""

    def __init__(
        self, me: PoolNode, rules: PoolRules, *, listen: Callable[[KvChange], None]
    ) -> None:
        self.rules = rules
        self.members = PoolMembers(me)
        self.index = PoolIndex()
        self.sources = Sources(rules.bytes_per_s)
        self.heat = Heat(rules.half_life_s)
        self.placing = Placing()
        self.replicas = Replicas(
            ReplicaRules(hot_per_s=rules.hot_per_s, most_copies=rules.most_copies),
            me.weight,
            hits_per_s=self.heat.hits_per_s,
            copies=self._copies,
        )
        self._listen = listen
        self._own: dict[BlockKey, None] = {}
        self._inexact: set[BlockKey] = set()
        """Those of them that are lossy copies: nobody's to pass on."""
        self._told: dict[BlockKey, None] = {}
        self._unreviewed: dict[BlockKey, bool] = {}
        """Whether it is to be placed, too."""

    # ── who is there ─────────────────────────────────────────────────────────────────────────

    def joined(self, node: PoolNode) -> None:
        """A life of a peer is there: nothing is known yet of what it has. Mutates."""
        name = node.name
        if name == self.members.me:
            return
        lost = self.index.begin(name, node.incarnation)
        self.sources.forget(name)
        self._review_later(lost)
        if self.members.joined(node):
            moved = [key for key in self._own if self.members.home(key) == name]
            self._review_later(moved, place=True)

    def left(self, name: StoreName, incarnation: Incarnation) -> None:
        """That life of a peer is over. Another one's end changes nothing. Mutates."""
        if self.members.life_of(name) != incarnation or name == self.members.me:
            return
        moved = [key for key in self._own if self.members.home(key) == name]
        self.members.left(name, incarnation)
        self.placing.forget(name)
        self._review_later(self.index.left(name))
        self._review_later(moved, place=True)

    def heard(
        self, name: StoreName, incarnation: Incarnation, message: KvDump | KvEvents, now: Seconds
    ) -> KvReplay | None:
        """That life of a peer says what it has. Returns what it must say again. Mutates."""
        heard = self.index.apply(name, incarnation, message, now)
        self._review_later(heard.touched)
        return heard.wish

    # ── what is here ─────────────────────────────────────────────────────────────────────────

    def changed(self, change: KvChange, *, exact: bool = True) -> None:
        """A block came to a tier of this node, or left it. Mutates."""
        if change.tier is not Tier.HOST:
            return
        self._inexact.discard(change.key)
        if change.stored:
            self._own[change.key] = None
            if not exact:
                self._inexact.add(change.key)
        else:
            self._own.pop(change.key, None)
        self._review(change.key, place=False)

    def was_put(self, key: BlockKey) -> None:
        """A worker of this node has put it here: if its home is elsewhere it is to come there.
        Mutates."""
        self._review(key, place=True)

    def used(self, keys: Iterable[BlockKey], now: Seconds) -> None:
        """A worker of this node reads these. Mutates."""
        for key in keys:
            self.heat.hit(key, now)
            self.replicas.used(key)

    def review(self, most: int = REVIEWED_AT_ONCE) -> bool:
        """Look at so many blocks about which something has changed; whether more wait. Mutates."""
        for key in [key for key, _ in zip(self._unreviewed, range(most), strict=False)]:
            self._review(key, place=self._unreviewed.pop(key))
        return bool(self._unreviewed)

    # ── questions ────────────────────────────────────────────────────────────────────────────

    def home(self, key: BlockKey) -> StoreName:
        """Where the block lives while it is cold."""
        return self.members.home(key)

    def is_home(self, key: BlockKey) -> bool:
        """Whether that is here."""
        return self.members.home(key) == self.members.me

    def peers_have(self, key: BlockKey, now: Seconds) -> bool:
        """Whether a peer that may be asked has the block. Does not mutate."""
        return any(not self.sources.rests(one.name, now) for one in self.index.holders(key))

    def pooled(self) -> Collection[BlockKey]:
        """All that `listen` was told peers have. Valid until the next call of anything."""
        return self._told.keys()

    def source(
        self, key: BlockKey, now: Seconds, tried: Collection[StoreName] = ()
    ) -> Holder | None:
        """Whom to ask for it next: see `Sources.choose`."""
        holders = self.index.holders(key)
        return self.sources.choose(holders, self.rules.block_bytes, now, tried)

    def likely_source(self, key: BlockKey, now: Seconds) -> Holder | None:
        """Whom `source` would say, as it seems now. Does not mutate."""
        return self.sources.likely(self.index.holders(key), self.rules.block_bytes, now)

    def is_sole(self, key: BlockKey) -> bool:
        """Whether it is in this node's memory, to the bit, and no peer has it."""
        mine = key in self._own and key not in self._inexact
        return mine and not self.index.holders(key)

    def sole_copies(
        self, but: Collection[BlockKey] = (), most: int = REVIEWED_AT_ONCE
    ) -> Mapping[StoreName, Sequence[BlockKey]]:
        """So many of the blocks that are sole, `but` these, by the peer that each will live at once
        this node is gone; none if it is alone. Does not mutate."""
        found: dict[StoreName, list[BlockKey]] = {}
        sole = (key for key in self._own if key not in but and self.is_sole(key))
        for key in islice(sole, most):
            if (heir := self.members.heir(key)) is not None:
                found.setdefault(heir, []).append(key)
        return found

    def first_to_go(self, idle: Callable[[BlockKey], bool], now: Seconds) -> BlockKey | None:
        """See `Replicas.first_to_go`: never a block that its home has lost meanwhile."""
        return self.replicas.first_to_go(lambda key: idle(key) and self._is_copy(key), now)

    def _is_copy(self, key: BlockKey) -> bool:
        home = self.members.home(key)
        return home != self.members.me and self.index.in_memory(home, key)

    def _copies(self, key: BlockKey) -> int:
        return sum(holder.tier is Tier.HOST for holder in self.index.holders(key))

    def _review_later(self, keys: Collection[BlockKey], place: bool = False) -> None:
        for key in keys:
            self._unreviewed[key] = place or self._unreviewed.get(key, False)

    def _review(self, key: BlockKey, *, place: bool) -> None:
        """See what follows from where the block lies now."""
        self._tell(key, bool(self.index.holders(key)))
        if key not in self._own or self.is_home(key):
            self.replicas.discard(key)
            self.placing.discard(key)
        elif self._is_copy(key):
            self.replicas.add(key)
            self.placing.discard(key)
        else:
            self.replicas.discard(key)
            if place and key not in self._inexact:
                self.placing.offer(key, self.members.home(key))

    def _tell(self, key: BlockKey, there: bool) -> None:
        if there and key not in self._told:
            self._told[key] = None
            self._listen(KvChange(key, Tier.PEER, True))
        elif not there and key in self._told:
            del self._told[key]
            self._listen(KvChange(key, Tier.PEER, False))
