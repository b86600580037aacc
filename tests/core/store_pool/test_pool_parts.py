"""The parts of a pool's decisions, one by one."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.store_pool import Announced, Holder, Placing, ReplicaRules, Replicas, Sources
from antiphon.core.store_pool.heat import Heat
from antiphon.core.tiers import policy_named
from antiphon.types import BlockKey, KvChange, StoreName, Tier

A, B, C = map(StoreName, "abc")
SIZE = 1000
keys = st.integers(0, 9).map(lambda number: bytes([number]))


def holders(*names: StoreName, tier: Tier = Tier.HOST) -> list[Holder]:
    return [Holder(name, tier) for name in names]


def asked(sources: Sources, who: list[Holder], now: float = 0.0) -> StoreName | None:
    holder = sources.choose(who, SIZE, now, ())
    return None if holder is None else holder.name


# ── heat ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rate", [0.5, 4.0, 100.0])
def test_a_steady_rate_is_measured_and_fades_by_half(rate: float) -> None:
    heat, now = Heat(10.0), 0.0
    for _ in range(int(100 * rate)):
        now += 1 / rate
        heat.hit(b"k", now)
    assert heat.hits_per_s(b"k", now) == pytest.approx(rate, rel=log(2) / (10 * rate) + 0.05)
    later = heat.hits_per_s(b"k", now + 10)
    assert later == pytest.approx(heat.hits_per_s(b"k", now) / 2)


def test_heat_is_bounded() -> None:
    heat = Heat(10.0, most_keys=3)
    for number in range(10):
        heat.hit(bytes([number]), float(number))
    assert len(heat) == 3
    assert heat.hits_per_s(b"\0", 10.0) == 0 < heat.hits_per_s(b"\x09", 10.0)


# ── copies that go first ─────────────────────────────────────────────────────────────────────────


def replicas(hits: dict[BlockKey, float], copies: int = 1, slots: int = 40) -> Replicas:
    return Replicas(
        ReplicaRules(hot_per_s=1.0, most_copies=2, share=0.1),
        slots,
        hits_per_s=lambda key, now: hits.get(key, 0.0),
        copies=lambda key: copies,
    )


def test_cold_copies_go_oldest_first_and_hot_ones_stay() -> None:
    copies = replicas({b"b": 2.0})
    for key in (b"a", b"b", b"c"):
        copies.add(key)
    copies.used(b"a")
    gone = []
    while (key := copies.first_to_go(lambda key: True, 0.0)) is not None:
        copies.discard(key)
        gone.append(key)
    assert gone == [b"c", b"a"]
    assert b"b" in copies


def test_what_is_read_now_does_not_go() -> None:
    copies = replicas({})
    copies.add(b"a")
    assert copies.first_to_go(lambda key: False, 0.0) is None
    assert copies.first_to_go(lambda key: True, 0.0) == b"a"


def test_hot_copies_are_bounded_in_a_node_and_in_the_pool() -> None:
    hits = {bytes([number]): 9.0 for number in range(5)}
    some = replicas(hits)  # 4 of 40 slots
    for key in hits:
        some.add(key)
    assert some.first_to_go(lambda key: True, 0.0) is not None
    enough = replicas(hits, copies=3)
    enough.add(b"\0")
    assert enough.first_to_go(lambda key: True, 0.0) == b"\0"


# ── whom to ask ──────────────────────────────────────────────────────────────────────────────────


def test_the_one_with_less_to_do_is_asked_and_then_the_faster_one() -> None:
    sources = Sources(1e6)
    assert asked(sources, holders(B, A)) == A
    sources.asked(A, SIZE)
    assert asked(sources, holders(A, B)) == B
    sources.came(A, SIZE, SIZE / 4e6)
    assert sources.bytes_per_s(A) > 1e6
    assert asked(sources, holders(A, B)) == A
    disk = [*holders(A, tier=Tier.DISK), *holders(B)]
    assert asked(sources, disk) == B, "memory before a disk"


def test_a_failing_peer_rests_and_is_tried_again() -> None:
    sources = Sources(1e6)
    for _ in range(2):
        sources.asked(A, SIZE)
        sources.failed(A, SIZE, 0.0)
    assert asked(sources, holders(A)) is None
    assert sources.rests(A, 0.4)
    assert asked(sources, holders(A, B), 0.4) == B
    assert sources.likely(holders(A), SIZE, 0.4) is None
    for _ in range(3):
        assert sources.likely(holders(A), SIZE, 0.6) == Holder(A, Tier.HOST), "it takes no probe"
    assert asked(sources, holders(A), 0.6) == A, "one probe"
    assert asked(sources, holders(A), 0.6) is None
    sources.came(A, SIZE, 0.001)
    assert not sources.rests(A, 0.7)


def test_a_peer_that_lacks_a_block_has_not_failed() -> None:
    sources = Sources(1e6)
    for _ in range(9):
        sources.asked(A, SIZE)
        sources.missed(A, SIZE)
    assert asked(sources, holders(A)) == A
    assert sources.waiting_bytes(A) == 0


def test_a_peer_whose_speed_is_a_guess_is_given_half_of_the_time() -> None:
    """8 MiB over 50 Mbit/s, which was taken for 10 Gbit/s: what was late teaches what it needs."""
    sources, size, speed = Sources(1.25e9), 8 << 20, 6.25e6
    assert sources.patience_s(A, size, 20.0) == 5.0
    patience_s = sources.patience_s(A, size, 2.0)
    assert patience_s == 1.0
    sources.asked(A, size)
    sources.failed(A, size, 0.0, came_bytes=int(speed * patience_s), took_s=patience_s)
    assert sources.bytes_per_s(A) == speed
    assert sources.patience_s(A, size, 2.0) > size / speed


def test_what_turns_out_to_be_another_size_ends_with_that_one() -> None:
    sources = Sources(1e6)
    sources.asked(A, SIZE)
    sources.turned_out(A, SIZE, 4 * SIZE)
    assert sources.waiting_bytes(A) == 4 * SIZE
    sources.came(A, 4 * SIZE, 1.0)
    assert (sources.waiting_bytes(A), sources.bytes_per_s(A)) == (0, 4 * SIZE)


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.sampled_from("cmf")), max_size=60))
def test_what_was_asked_is_settled_once_it_ended(calls: list[tuple[StoreName, str]]) -> None:
    """Law: nothing waits when all reads have ended; patience and speed stay within bounds."""
    sources = Sources(1e6)
    for now, (name, end) in enumerate(calls):
        sources.asked(name, SIZE)
        match end:
            case "c":
                sources.came(name, SIZE, 0.01)
            case "m":
                sources.missed(name, SIZE)
            case _:
                sources.failed(name, SIZE, float(now))
        assert 0.5 <= sources.patience_s(name, SIZE, 2.0) <= 5.0
        assert 0 < sources.bytes_per_s(name) <= 1e6
    assert all(sources.waiting_bytes(name) == 0 for name in (A, B, C))


# ── on the way home ──────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.tuples(keys, st.sampled_from([A, B, None])), max_size=40),
    st.integers(1, 8),
)
def test_placing_is_bounded_and_names_each_block_once(
    offers: list[tuple[BlockKey, StoreName | None]], most: int
) -> None:
    placing, wanted = Placing(most), {}
    for key, home in offers:
        if home is None:
            placing.discard(key)
            wanted.pop(key, None)
        elif key in wanted or len(wanted) < most:
            placing.offer(key, home)
            wanted[key] = home
        assert len(placing) == len(wanted) <= most
    taken = {}
    while (turn := placing.take()) is not None:
        home, some = turn
        assert not taken.keys() & set(some)
        taken |= dict.fromkeys(some, home)
    assert taken == wanted
    assert len(placing) == 0


def test_homes_take_turns() -> None:
    placing = Placing()
    for number in range(200):
        placing.offer(number.to_bytes(2, "big"), A if number < 150 else B)
    turns = []
    while (turn := placing.take()) is not None:
        turns.append(turn[0])
    assert turns == [A, B, A, A]


# ── what is said ─────────────────────────────────────────────────────────────────────────────────


def test_what_an_earlier_life_left_is_said_once_it_is_proven() -> None:
    said: list[KvChange] = []
    announced = Announced(said.append)
    for key in (b"old", b"bad"):
        announced.recovered(key)
        announced.changed(KvChange(key, Tier.DISK, True))
    announced.changed(KvChange(b"new", Tier.DISK, True))
    announced.changed(KvChange(b"old", Tier.HOST, True))
    announced.changed(KvChange(b"far", Tier.REMOTE, True))
    assert said == [KvChange(b"new", Tier.DISK, True), KvChange(b"old", Tier.HOST, True)]
    assert not announced.says(b"old", Tier.DISK)
    proving = announced.to_prove(10)
    assert list(proving) == [b"old", b"bad"]
    announced.changed(KvChange(b"bad", Tier.DISK, False))
    announced.proven(proving)
    assert said[2:] == [KvChange(b"old", Tier.DISK, True)]
    assert announced.unproven == 0
    announced.changed(KvChange(b"old", Tier.DISK, False))
    assert said[3:] == [KvChange(b"old", Tier.DISK, False)]


# ── what goes where chains are spread ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["lru", "hit-density"])
def test_a_prompt_whose_blocks_are_spread_goes_from_its_end(name: str) -> None:
    policy = policy_named(name, spread=True)()
    for position in range(4):
        key = bytes([position])
        policy.add(key, position)
        policy.idle(key)
    gone = []
    while (key := policy.victim()) is not None:
        policy.remove(key, evicted=True)
        gone.append(key)
    assert gone == [b"\3", b"\2", b"\1", b"\0"]
