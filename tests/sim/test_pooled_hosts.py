"""Laws of a pool of stores under any order of joins, crashes, reads, and lost or late words."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antiphon.core.store_pool import PoolRules
from antiphon.core.tiers import policy_named
from antiphon.sim.pooled_hosts import Copy, PooledHost, PooledHosts
from antiphon.types import BlockKey, StoreName, Tier

NAMES = [StoreName(f"box{number}") for number in range(4)]
SLOTS = 4
RULES = PoolRules(block_bytes=1000, bytes_per_s=1e6, half_life_s=10.0)
TTL_S = 5.0

paths = st.lists(st.integers(0, 1), min_size=1, max_size=4)


def chain(path: list[int]) -> list[BlockKey]:
    return [bytes([1, *path[: depth + 1]]).ljust(32, b"\0") for depth in range(len(path))]


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.world = PooledHosts(RULES, policy_named("hit-density"), lease_ttl_s=TTL_S)
        self.copies: list[tuple[StoreName, Copy]] = []
        for name in NAMES[:2]:
            self.world.join(name, SLOTS)

    def host(self, number: int) -> PooledHost:
        names = sorted(self.world.hosts)
        return self.world.hosts[names[number % len(names)]]

    # ── who is there ──────────────────────────────────────────────────────────────────────────

    @rule(name=st.sampled_from(NAMES), slots=st.sampled_from([SLOTS, 2 * SLOTS]))
    def join_or_restart(self, name: StoreName, slots: int) -> None:
        """A restart is a crash that nobody had time to notice before the next life."""
        if name in self.world.hosts:
            self.world.leave(name, self.now)
        self.world.join(name, slots)

    @precondition(lambda self: len(self.world.hosts) > 1)
    @rule(number=st.integers(0, 3))
    def crash(self, number: int) -> None:
        self.world.leave(self.host(number).node.name, self.now)

    # ── what is done ──────────────────────────────────────────────────────────────────────────

    @rule(number=st.integers(0, 3), path=paths)
    def put(self, number: int, path: list[int]) -> None:
        host, keys = self.host(number), chain(path)
        for key, parent in zip(keys, [None, *keys[:-1]], strict=True):
            host.put(key, parent, self.now)

    @rule(number=st.integers(0, 3), path=paths)
    def read(self, number: int, path: list[int]) -> None:
        """Every read ends, with a prefix that is here: what came is what was asked for."""
        host, keys = self.host(number), chain(path)
        for key, parent in zip(keys, [None, *keys[:-1]], strict=True):
            there = key in host.tier or self.world.fetch(host.node.name, key, parent, self.now)
            if not there:
                break
        host.present(keys, self.now)

    @rule(number=st.integers(0, 3), path=paths)
    def begin_copy(self, number: int, path: list[int]) -> None:
        host, key = self.host(number), chain(path)[-1]
        begun = self.world.begin_copy(host.node.name, key, self.now)
        if isinstance(begun, Copy):
            self.copies.append((host.node.name, begun))

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def end_copy(self, data: st.DataObject) -> None:
        """Late or in time, whatever has become of both sides meanwhile."""
        at = data.draw(st.integers(0, len(self.copies) - 1))
        reader, copy = self.copies.pop(at)
        if reader in self.world.hosts:
            self.world.end_copy(reader, copy, None, self.now)

    @rule(number=st.integers(0, 3))
    def place(self, number: int) -> None:
        self.world.place_some(self.host(number).node.name, self.now)

    @rule(seconds=st.sampled_from([0.1, TTL_S, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # ── what is said ──────────────────────────────────────────────────────────────────────────

    @rule(number=st.integers(0, 3))
    def speak(self, number: int) -> None:
        self.world.speak(self.host(number).node.name)

    @precondition(lambda self: any(self.world.words.values()))
    @rule(data=st.data(), how=st.sampled_from(["deliver", "lose", "repeat", "overtake"]))
    def word(self, data: st.DataObject, how: str) -> None:
        ways = sorted(way for way, waiting in self.world.words.items() if waiting)
        way = data.draw(st.sampled_from(ways))
        waiting = self.world.words[way]
        match how:
            case "lose":
                waiting.popleft()
            case "repeat":
                waiting.append(waiting[0])
            case "overtake":
                waiting.rotate(1)
        if waiting:
            self.world.deliver(*way, self.now)

    @rule(number=st.integers(0, 3))
    def word_of_a_past_life(self, number: int) -> None:
        """It comes when that life is over: nobody believes it."""
        host = self.host(number)
        before = {name: host.pool.index.held_by(name, Tier.HOST) for name in NAMES}
        stale = host.teller.dump()
        for name in NAMES:
            host.pool.heard(name, host.node.incarnation, stale, self.now)
        assert before == {name: host.pool.index.held_by(name, Tier.HOST) for name in NAMES}

    # ── laws ──────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def never_other_content_under_a_key(self) -> None:
        for host in self.world.hosts.values():
            lent = host.lend
            for key in list(host.tier.keys):
                if key in host.tier:
                    found = lent(key, self.now, "law")
                    if found is not None:
                        assert host.content[found[1]] == key
                        host.tier.release(found[0], self.now)

    @invariant()
    def what_goes_first_is_elsewhere_too(self) -> None:
        """As far as was heard; it is here, and its home is another."""
        for name, host in self.world.hosts.items():
            key = host.pool.first_to_go(lambda key: True, self.now)
            if key is not None:
                home = host.pool.home(key)
                assert home != name
                assert host.pool.index.in_memory(home, key)
                assert key in host.tier

    @invariant()
    def what_only_it_has_is_here_and_has_an_heir(self) -> None:
        """As far as was heard: a store that leaves in order has nothing else to give."""
        for name, host in self.world.hosts.items():
            for heir, keys in host.pool.sole_copies().items():
                assert heir in host.pool.members
                assert heir != name
                assert all(key in host.tier and not host.pool.index.holders(key) for key in keys)

    @rule()
    def quiet(self) -> None:
        """Once all is said and heard, each knows what each has, and what is a copy."""
        self.now += 2.0  # whoever waits for an answer asks again
        for name, host in self.world.hosts.items():
            for other in self.world.hosts:
                if other != name:
                    word = (host.node.incarnation, host.teller.dump())
                    self.world.words[name, other].append(word)
        self.world.settle(self.now)
        for name, host in self.world.hosts.items():
            others = [other for other in self.world.hosts.values() if other is not host]
            for other in others:
                truth = {key for key, _ in other.held()}
                assert host.pool.index.held_by(other.node.name, Tier.HOST) == truth
            assert set(host.heard) == {key for other in others for key, _ in other.held()}
            for key, _ in host.held():
                home = host.pool.home(key)
                elsewhere = home != name and key in self.world.hosts[home].tier
                assert (key in host.pool.replicas) == elsewhere
            assert host.pool.home(b"x" * 32) == self.host(0).pool.home(b"x" * 32)


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
