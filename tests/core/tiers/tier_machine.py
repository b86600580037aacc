"""The host tier under any calls, against a model that knows every slot's user."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antiphon.core.tiers import Declined, DeclineReason, HostTier, policy_named
from antiphon.types import KvChange, LeaseId, Tier

TENANTS = (b"a", b"b", b"c")
LEASE_TTL_S = 5.0

paths = st.tuples(st.sampled_from(TENANTS), st.lists(st.integers(0, 1), min_size=1, max_size=4))


def chain(tenant: bytes, steps: list[int]) -> list[bytes]:
    """Keys of a tenant's chain; equal beginnings have equal keys."""
    return [tenant + bytes(steps[: depth + 1]) for depth in range(len(steps))]


def parent_of(key: bytes) -> bytes | None:
    return key[:-1] if len(key) > 2 else None


@dataclass
class Read:
    """A lease: which slots somebody copies from, and until when (None: without end)."""

    blocks: list[tuple[bytes, int]]
    deadline: float | None
    holder: str


@dataclass
class Model:
    """What must be true of the tier after the calls so far."""

    writing: dict[bytes, int] = field(default_factory=dict)
    writers: dict[bytes, str] = field(default_factory=dict)
    cancelled: set[bytes] = field(default_factory=set)
    visible: dict[bytes, int] = field(default_factory=dict)
    reads: dict[LeaseId, Read] = field(default_factory=dict)
    pinned: set[bytes] = field(default_factory=set)
    active_at: dict[bytes, float] = field(default_factory=dict)

    def read_slots(self) -> set[int]:
        return {slot for read in self.reads.values() for _, slot in read.blocks}

    def in_use(self) -> set[int]:
        """Slots that somebody reads, writes or pinned: not to be given to anyone."""
        pinned = {self.visible[key] for key in self.pinned}
        return self.read_slots() | set(self.writing.values()) | pinned

    def leaving(self) -> set[int]:
        return self.read_slots() - set(self.visible.values())

    def slots_of(self, tenant: bytes) -> int:
        own = [*self.writing, *self.visible]
        leaving = {
            slot
            for read in self.reads.values()
            for key, slot in read.blocks
            if key[:1] == tenant and slot in self.leaving()
        }
        return sum(key[:1] == tenant for key in own) + len(leaving)

    def continued(self, key: bytes) -> bool:
        return any(parent_of(one) == key for one in (*self.writing, *self.visible))

    def prefix(self, keys: list[bytes]) -> list[bytes]:
        found = []
        for key in keys:
            if key not in self.visible:
                break
            found.append(key)
        return found

    def hide(self, key: bytes) -> None:
        del self.visible[key]
        self.pinned.discard(key)


class TierMachine(RuleBasedStateMachine):
    slots = 8
    tenant_share = 0.5
    policy = "hit-density"
    tier_class: Callable[..., HostTier] = HostTier

    def __init__(self) -> None:
        super().__init__()
        self.events: list[KvChange] = []
        self.tier = self.tier_class(
            slots=self.slots,
            policy=policy_named(self.policy),
            lease_ttl_s=LEASE_TTL_S,
            tenant_share=self.tenant_share,
            max_leases=4,
            listen=self.events.append,
        )
        self.model = Model()
        self.now = 0.0
        self.leases = 0

    # ── what may be called ────────────────────────────────────────────────────────────────────

    @rule(path=paths, writer=st.sampled_from(("w0", "w1")), needs_parent=st.booleans())
    def begin_put(self, path: tuple[bytes, list[int]], writer: str, needs_parent: bool) -> None:
        """The last block of a chain, whether or not its parent is here."""
        self.put(chain(*path)[-1], writer, needs_parent=needs_parent)

    @rule(path=paths)
    def put_chain(self, path: tuple[bytes, list[int]]) -> None:
        """As a worker does it: what is missing, in order, written at once."""
        for key in chain(*path):
            if self.put(key, "w0"):
                self.end(key, True)

    @precondition(lambda self: self.model.writing)
    @rule(data=st.data(), good=st.booleans())
    def end_put(self, data: st.DataObject, good: bool) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.model.writing))), good)

    @rule(path=paths, work=st.booleans())
    def read(self, path: tuple[bytes, list[int]], work: bool) -> None:
        keys = chain(*path)
        self.leases += 1
        lease, holder = LeaseId(f"l{self.leases}"), f"r{self.leases % 2}"
        full = len(self.model.reads) >= 4
        if work:
            slots = self.tier.hold(keys, lease, holder=holder)
        else:
            self.expired()
            full = len(self.model.reads) >= 4
            slots = self.tier.read(keys, lease, self.now, holder=holder)
        found = self.model.prefix(keys)
        if full and not work:
            assert slots == ()
            return
        assert slots == tuple(self.model.visible[key] for key in found), "reads what was written"
        if found:
            deadline = None if work else self.now + LEASE_TTL_S
            blocks = list(zip(found, slots, strict=True))
            self.model.reads[lease] = Read(blocks, deadline, holder)
            if not work:
                self.model.active_at[path[0]] = self.now

    @precondition(lambda self: self.model.reads)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(sorted(self.model.reads)))
        self.expired()
        assert self.tier.release(lease, self.now) == (lease in self.model.reads)
        self.model.reads.pop(lease, None)
        assert not self.tier.release(lease, self.now), "a lease ends once"

    @rule(seconds=st.sampled_from((0.5, 3.0, 700.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        assert self.tier.expire(self.now) == self.expired()

    @rule(name=st.sampled_from(("w0", "w1", "r0", "r1")))
    def abandon(self, name: str) -> None:
        model = self.model
        leases = [lease for lease, read in model.reads.items() if read.holder == name]
        writes = [key for key, writer in model.writers.items() if writer == name]
        assert self.tier.abandon(name, self.now) == len(leases) + len(writes)
        for lease in leases:
            del model.reads[lease]
        for key in writes:
            self.forget_write(key)

    @rule(path=paths)
    def pin(self, path: tuple[bytes, list[int]]) -> None:
        found, expected = self.model.prefix(chain(*path)), 0
        for key in found:
            if key not in self.model.pinned and len(self.model.pinned) >= self.slots // 2:
                break
            self.model.pinned.add(key)
            expected += 1
        assert self.tier.pin(chain(*path), self.now) == expected

    @rule(path=paths)
    def unpin(self, path: tuple[bytes, list[int]]) -> None:
        keys = set(chain(*path))
        assert self.tier.unpin(chain(*path)) == len(keys & self.model.pinned)
        self.model.pinned -= keys

    @rule(tenant=st.none() | st.sampled_from(TENANTS), path=st.none() | paths)
    def clear(self, tenant: bytes | None, path: tuple[bytes, list[int]] | None) -> None:
        model, keys = self.model, None if path is None else chain(*path)
        gone = [
            key
            for key in (*model.visible, *(set(model.writing) - model.cancelled))
            if tenant in (None, key[:1]) and (keys is None or key in keys)
        ]
        assert self.tier.clear(tenant, keys) == len(gone)
        for key in gone:
            if key in model.visible:
                model.hide(key)
            else:
                model.cancelled.add(key)

    @rule(path=paths)
    def drop(self, path: tuple[bytes, list[int]]) -> None:
        key = chain(*path)[-1]
        known = key in self.model.visible or key in set(self.model.writing) - self.model.cancelled
        assert self.tier.drop(key) == known
        if key in self.model.visible:
            self.model.hide(key)
        elif known:
            self.model.cancelled.add(key)

    @rule(path=paths)
    def probe(self, path: tuple[bytes, list[int]]) -> None:
        assert self.tier.present(chain(*path)) == len(self.model.prefix(chain(*path)))

    # ── what they must do ─────────────────────────────────────────────────────────────────────

    def put(self, key: bytes, writer: str, *, needs_parent: bool = True) -> bool:
        model, tenant = self.model, key[:1]
        self.expired()
        before, told = dict(model.visible), len(self.events)
        quota = max(1, int(self.slots * self.tenant_share))
        full = self.tier.free_slots == 0
        guaranteed = self.tier._slots.guaranteed
        parent = parent_of(key)
        answer = self.tier.begin_put(
            key, parent, tenant, self.now, writer=writer, needs_parent=needs_parent
        )
        gone = [change.key for change in self.events[told:]]
        if isinstance(answer, Declined):
            assert not gone, "a declined put evicts nothing"
            assert (answer.reason is DeclineReason.KNOWN) == (key in before or key in model.writing)
            return False
        assert key not in before and key not in model.writing, "one slot a block"
        model.active_at[tenant] = self.now
        for victim in gone:
            self.evicted(victim, tenant, key, guaranteed)
        orphan = parent is not None and parent not in before and parent not in model.writing
        assert not (gone and needs_parent and orphan), "what nobody finds pushes nothing out"
        assert len(gone) <= 1 and (not gone or full or model.slots_of(tenant) + 1 >= quota)
        assert answer not in model.in_use(), "nobody reads, writes or pinned a slot given away"
        assert answer not in model.visible.values(), "a visible block has its slot for itself"
        model.writing[key] = answer
        model.writers[key] = writer
        return True

    def evicted(self, victim: bytes, putter: bytes, newcomer: bytes, guaranteed: int) -> None:
        model, owner = self.model, victim[:1]
        assert victim not in model.pinned, "what is pinned stays"
        assert not model.continued(victim), "children go before their parents"
        assert victim != parent_of(newcomer), "a block does not push out its own beginning"
        model.hide(victim)
        active = self.now - model.active_at.get(owner, -1e9) < 600.0
        if owner != putter and active:
            assert model.slots_of(owner) >= guaranteed, "nobody falls below what is guaranteed"

    def end(self, key: bytes, good: bool) -> None:
        model = self.model
        visible = good and key not in model.cancelled
        slot = model.writing[key]
        assert self.tier.end_put(key, good, self.now) == visible
        self.forget_write(key)
        if visible:
            model.visible[key] = slot

    def forget_write(self, key: bytes) -> None:
        del self.model.writing[key]
        del self.model.writers[key]
        self.model.cancelled.discard(key)

    def expired(self) -> int:
        reads = self.model.reads
        due = [
            lease
            for lease, read in reads.items()
            if read.deadline is not None and read.deadline <= self.now
        ]
        for lease in due:
            del reads[lease]
        return len(due)

    @invariant()
    def slots_are_conserved(self) -> None:
        tier, live = self.tier, self.tier.leaving_slots
        total = tier.free_slots + tier.writing_slots + tier.visible_blocks + live
        assert total == self.slots
        assert tier.writing_slots == len(self.model.writing)
        assert tier.visible_blocks == len(self.model.visible)

    @invariant()
    def only_what_was_written_is_visible(self) -> None:
        visible = {key for key in self.tier.keys if key in self.tier}
        assert visible == set(self.model.visible)
        assert all(key in self.tier for key in self.model.visible)
        assert not any(key in self.tier for key in self.model.writing)

    @invariant()
    def events_tell_what_is_visible(self) -> None:
        told: set[bytes] = set()
        for change in self.events:
            assert change.tier is Tier.HOST
            assert (change.key in told) != change.stored, "in and out in turn"
            (told.add if change.stored else told.remove)(change.key)
        assert told == set(self.model.visible)

    @invariant()
    def no_tenant_has_more_than_its_quota(self) -> None:
        quota = max(1, int(self.slots * self.tenant_share))
        for use in self.tier.tenants():
            assert 0 < use.blocks <= quota
        assert sum(use.blocks for use in self.tier.tenants()) == self.slots - self.tier.free_slots

    @invariant()
    def the_next_deadline_is_the_earliest(self) -> None:
        reads = self.model.reads.values()
        timed = [read.deadline for read in reads if read.deadline is not None]
        due = self.tier.next_deadline()
        assert due == min(timed, default=None) or (due is not None and due <= self.now)

    def teardown(self) -> None:
        """All drains: what nobody uses any more is free, and can be used anew."""
        for key in list(self.model.writing):
            self.end(key, True)
        for name in ("r0", "r1"):
            self.tier.abandon(name, self.now)
        self.tier.clear()
        tier = self.tier
        assert (tier.free_slots, tier.leaving_slots, tier.writing_slots) == (self.slots, 0, 0)
        stats = tier.stats(1)
        assert (stats.blocks, stats.leases, stats.pinned_blocks, stats.used_bytes) == (0, 0, 0, 0)
        taken = [tier.begin_put(b"z%d" % n, None, b"%d" % n, self.now) for n in range(self.slots)]
        assert sorted(slot for slot in taken if isinstance(slot, int)) == list(range(self.slots))
