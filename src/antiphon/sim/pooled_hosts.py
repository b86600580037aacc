"""Stores of a pool without a network or bytes of their own: messages wait until they are delivered.

    put ──► PooledHostTier ──► StorePool: told to all, offered to its home
    read ──► here, else from whoever `StorePool.source` names: begin_copy … end_copy

What lies in a slot is the key of the block that was written there last, so that a copy which came
too late is seen to hold another block: the reader checks it, as live by a checksum.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from antiphon.core.store_pool import PooledHostTier, PoolNode, PoolRules, StorePool
from antiphon.core.tiers import Declined, PolicyFactory, Slot
from antiphon.core.tiers.bring_up import BLOCKS_A_TURN
from antiphon.types import (
    BlockKey,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    LeaseId,
    Seconds,
    StoreName,
    Tier,
)

from .kv_teller import ChangeTeller


@dataclass(frozen=True, slots=True)
class Copy:
    """A block on its way from a peer's slot to one of ours; `life` of the lender."""

    key: BlockKey
    lender: StoreName
    life: Incarnation
    lease: LeaseId
    slot: Slot
    begun_at: Seconds


class PooledHost:
    """One life of one store. Mutable."""

    def __init__(
        self,
        node: PoolNode,
        rules: PoolRules,
        policy: PolicyFactory,
        *,
        lease_ttl_s: Seconds = 5.0,
        kept_changes: int = 4096,
    ) -> None:
        self.node = node
        self.heard: dict[BlockKey, None] = {}
        """What a gateway was told that peers have."""
        self.lent_blocks = self.read_blocks = 0
        self.content: dict[Slot, BlockKey] = {}
        self.parents: dict[BlockKey, BlockKey | None] = {}
        self.pool = StorePool(node, rules, listen=self._peers_have)
        self.tier = PooledHostTier(
            first_to_go=self.pool.first_to_go,
            slots=node.weight,
            policy=policy,
            lease_ttl_s=lease_ttl_s,
            listen=self._changed,
        )
        self.teller = ChangeTeller(self.held, kept_changes)
        self._leases = 0

    def held(self) -> Iterator[tuple[BlockKey, Tier]]:
        """All that it has."""
        return ((key, Tier.HOST) for key in self.tier.keys if key in self.tier)

    def put(self, key: BlockKey, parent: BlockKey | None, now: Seconds) -> bool:
        """A worker's block comes, if there is room. Mutates."""
        if not self._write(key, parent, now):
            return False
        self.pool.was_put(key)
        return True

    def take_in(
        self, key: BlockKey, parent: BlockKey | None, now: Seconds, position: int = 0
    ) -> bool:
        """A copy that was checked comes, if there is room. Mutates."""
        return self._write(key, parent, now, position)

    def present(self, keys: Sequence[BlockKey], now: Seconds) -> int:
        """How many of the keys, from the first on, a worker reads here. Counts as a use."""
        lease = self.new_lease()
        found = len(self.tier.read(keys, lease, now))
        self.tier.release(lease, now)
        self.pool.used(keys[:found], now)
        return found

    def lend(self, key: BlockKey, now: Seconds, borrower: str) -> tuple[LeaseId, Slot] | None:
        """The block's slot, under a lease; None: it is not here."""
        lease = self.new_lease()
        slots = self.tier.lend([key], lease, now, holder=borrower)
        return (lease, slots[key]) if slots else None

    def _write(
        self, key: BlockKey, parent: BlockKey | None, now: Seconds, position: int = 0
    ) -> bool:
        slot = self.tier.begin_put(key, parent, b"", now, position=position)
        if isinstance(slot, Declined):
            return False
        self.content[slot] = key
        self.parents[key] = parent
        return self.tier.end_put(key, True, now)

    def _changed(self, change: KvChange) -> None:
        self.teller.note(change)
        self.pool.changed(change)

    def _peers_have(self, change: KvChange) -> None:
        if change.stored:
            self.heard[change.key] = None
        else:
            del self.heard[change.key]

    def new_lease(self) -> LeaseId:
        """A name for one."""
        self._leases += 1
        return LeaseId(f"{self.node.name}-{self._leases}")


class PooledHosts:
    """Hosts that come and go, and the words between them: in order, and none lost, unless who uses
    this takes some out of `words`. Mutable."""

    def __init__(
        self, rules: PoolRules, policy: PolicyFactory, *, lease_ttl_s: Seconds = 5.0
    ) -> None:
        self.hosts: dict[StoreName, PooledHost] = {}
        self.words: dict[tuple[StoreName, StoreName], deque[tuple[Incarnation, object]]] = {}
        """From whom to whom: of which life of the speaker, and what."""
        self._rules, self._policy, self._lease_ttl_s = rules, policy, lease_ttl_s
        self._lives = 0

    # ── who is there ─────────────────────────────────────────────────────────────────────────

    def join(self, name: StoreName, slots: int) -> PooledHost:
        """A life begins, of a new node or one that has gone: all are connected. Mutates."""
        self._lives += 1
        node = PoolNode(name=name, incarnation=Incarnation(f"{name}#{self._lives}"), weight=slots)
        host = PooledHost(node, self._rules, self._policy, lease_ttl_s=self._lease_ttl_s)
        for other in self.hosts.values():
            self._connect(other, host)
            self._connect(host, other)
        self.hosts[name] = host
        return host

    def leave(self, name: StoreName, now: Seconds) -> None:
        """A life ends, at once; the others see that their streams end. Mutates."""
        gone = self.hosts.pop(name)
        for other in self.hosts.values():
            other.pool.left(name, gone.node.incarnation)
            other.tier.abandon(name, now)
        for way in [way for way in self.words if name in way]:
            del self.words[way]

    def _connect(self, listener: PooledHost, speaker: PooledHost) -> None:
        listener.pool.joined(speaker.node)
        way = (speaker.node.name, listener.node.name)
        self.words[way] = deque([(speaker.node.incarnation, speaker.teller.dump())])

    # ── what is said ─────────────────────────────────────────────────────────────────────────

    def speak(self, name: StoreName) -> None:
        """It says what has changed to all others. Mutates."""
        host = self.hosts[name]
        if host.teller.has_news:
            news = host.teller.news()
            for other in self.hosts:
                if other != name:
                    self.words[name, other].append((host.node.incarnation, news))

    def deliver(self, speaker: StoreName, listener: StoreName, now: Seconds) -> None:
        """The next word of one to the other. Mutates; an answer waits in its turn."""
        life, word = self.words[speaker, listener].popleft()
        assert isinstance(word, KvDump | KvEvents)
        wish = self.hosts[listener].pool.heard(speaker, life, word, now)
        if wish is not None and speaker in self.hosts:
            again = self.hosts[speaker].teller.again(wish)
            self.words[speaker, listener].append((self.hosts[speaker].node.incarnation, again))

    def settle(self, now: Seconds) -> None:
        """All is said, heard and looked at. Mutates."""
        for name in self.hosts:
            self.speak(name)
        for (speaker, listener), waiting in self.words.items():
            while waiting:
                self.deliver(speaker, listener, now)
        for host in self.hosts.values():
            while host.pool.review():
                pass

    # ── what moves ───────────────────────────────────────────────────────────────────────────

    def begin_copy(
        self, reader: StoreName, key: BlockKey, now: Seconds, tried: Sequence[StoreName] = ()
    ) -> Copy | StoreName | None:
        """Ask for a block. A name: that peer has been asked, and has not got it; None: nobody
        is left to ask."""
        pool = self.hosts[reader].pool
        holder = pool.source(key, now, tried)
        if holder is None:
            return None
        lender, size = self.hosts.get(holder.name), self._rules.block_bytes
        pool.sources.asked(holder.name, size)
        lent = lender.lend(key, now, reader) if lender is not None else None
        if lender is None or lent is None:
            pool.sources.missed(holder.name, size)
            return holder.name
        lease, slot = lent
        return Copy(key, holder.name, lender.node.incarnation, lease, slot, now)

    def end_copy(
        self, reader: StoreName, copy: Copy, parent: BlockKey | None, now: Seconds
    ) -> bool:
        """It comes, if the lender lives, and its slot holds what was asked for. Mutates."""
        host, size = self.hosts[reader], self._rules.block_bytes
        lender = self.hosts.get(copy.lender)
        if lender is None or lender.node.incarnation != copy.life:
            host.pool.sources.failed(copy.lender, size, now)
            return False
        content = lender.content[copy.slot]
        lender.tier.release(copy.lease, now)
        if content != copy.key:
            host.pool.sources.failed(copy.lender, size, now)
            return False
        host.pool.sources.came(copy.lender, size, now - copy.begun_at)
        lender.lent_blocks += 1
        host.read_blocks += 1
        return host.take_in(copy.key, parent, now)

    def fetch(
        self, reader: StoreName, key: BlockKey, parent: BlockKey | None, now: Seconds
    ) -> bool:
        """A whole copy at once, from whoever has it; whether it came. Mutates."""
        tried: list[StoreName] = []
        while True:
            match self.begin_copy(reader, key, now, tried):
                case None:
                    return False
                case Copy() as copy:
                    return self.end_copy(reader, copy, parent, now)
                case name:
                    tried.append(name)

    def read_prefix(self, name: StoreName, keys: Sequence[BlockKey], now: Seconds) -> int:
        """A worker of this host reads as long a prefix as can be had; how many blocks it has.
        Mutates: what its peers have comes here, and stays while the rest is brought up."""
        host = self.hosts[name]
        parents, leases, found = (None, *keys[:-1]), list[LeaseId](), 0
        for first in range(0, len(keys), BLOCKS_A_TURN):
            turn = range(first, min(first + BLOCKS_A_TURN, len(keys)))
            came = list[LeaseId]()
            for place in turn:
                key = keys[place]
                if key not in host.tier and not self.fetch(name, key, parents[place], now):
                    break
                came.append(host.new_lease())
                host.tier.hold([key], came[-1], holder=name)
            lease = host.new_lease()
            held = len(host.tier.read([keys[place] for place in turn], lease, now))
            leases.append(lease)
            for one in came:
                host.tier.release(one, now)
            found += held
            if held < len(turn):
                break
        for lease in leases:
            host.tier.release(lease, now)
        host.pool.used(keys[:found], now)
        return found

    def place_some(self, name: StoreName, now: Seconds) -> int:
        """What waits for one home is copied there; how many blocks came. Mutates."""
        host = self.hosts[name]
        turn = host.pool.placing.take()
        if turn is None:
            return 0
        home, keys = turn
        there = self.hosts.get(home)
        if there is None:
            return 0
        came = 0
        for key in keys:
            lent = host.lend(key, now, home)
            if lent is None or key in there.tier:
                continue
            host.lent_blocks += 1
            position = host.tier.position_of(key)
            came += there.take_in(key, host.parents.get(key), now, position)
            host.tier.release(lent[0], now)
        return came
