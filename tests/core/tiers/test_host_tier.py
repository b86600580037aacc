"""Examples of the host tier; each that others' users were hurt by says so."""

import pytest

from antiphon.core.draws import Draws
from antiphon.core.tiers import Declined, DeclineReason, HostTier, TenantUse, policy_named
from antiphon.errors import BugError
from antiphon.types import KvChange, LeaseId, Tier

A, B = b"tenant a", b"tenant b"
CHAIN = [b"k0", b"k1", b"k2", b"k3"]
ONE, TWO = LeaseId("one"), LeaseId("two")


def tier(slots: int = 4, *, policy: str = "lru", share: float = 1.0, leases: int = 8) -> HostTier:
    return HostTier(
        slots=slots,
        policy=policy_named(policy),
        lease_ttl_s=5.0,
        tenant_share=share,
        max_leases=leases,
        listen=lambda change: None,
    )


def put(host: HostTier, *keys: bytes, tenant: bytes = A, now: float = 0.0) -> list[int | Declined]:
    """A chain, written at once."""
    answers: list[int | Declined] = []
    for place, key in enumerate(keys):
        parent = keys[place - 1] if place else None
        slot = host.begin_put(key, parent, tenant, now, needs_parent=True)
        answers.append(slot)
        if isinstance(slot, int):
            host.end_put(key, True, now)
    return answers


def test_a_block_is_found_once_it_is_written() -> None:
    changes: list[KvChange] = []
    host = HostTier(slots=2, policy=policy_named("lru"), lease_ttl_s=5.0, listen=changes.append)
    slot = host.begin_put(b"k0", None, A, 0.0)
    assert slot == 0 and host.read([b"k0"], ONE, 0.0) == () and not changes
    assert host.end_put(b"k0", True, 0.0)
    assert host.read([b"k0", b"k1"], ONE, 0.0) == (0,)
    assert changes == [KvChange(b"k0", Tier.HOST, True)]


def test_a_failed_write_is_never_found() -> None:
    """LMCache 4991: a failed write stayed visible."""
    host = tier()
    host.begin_put(b"k0", None, A, 0.0)
    assert not host.end_put(b"k0", False, 0.0)
    assert host.present([b"k0"]) == 0 and host.free_slots == 4
    assert put(host, b"k0") == [0], "and can be put again"
    assert dict(host.stats(1).dropped) == {"failed": 1}


def test_what_was_looked_up_is_there_until_it_was_read() -> None:
    """LMCache 4133: evicted between look-up and retrieve, the engine crashed."""
    host = tier(2)
    put(host, b"k0", b"k1")
    assert host.read([b"k0", b"k1"], ONE, 0.0) == (0, 1)
    assert put(host, b"other", now=4.9) == [Declined(DeclineReason.FULL)]
    assert host.release(ONE, 4.9)
    assert put(host, b"other", now=4.9) == [1]


def test_a_probe_is_no_use_and_no_lease() -> None:
    """Mooncake 2187, 3139: existence probes renewed leases, so that eviction found nothing."""
    host = tier(2)
    put(host, b"old")
    put(host, b"new")
    for now in range(100):
        assert host.present([b"old"]) == 1 and b"old" in host
        assert host.next_deadline() is None
        host.expire(now)
    assert put(host, b"newer", now=100.0) == [0]
    assert b"old" not in host


def test_a_full_tier_takes_new_blocks() -> None:
    """LMCache 900, 649: a server without eviction ran out of memory. Mooncake 3139: puts failed."""
    host = tier(4, policy="hit-density")
    for number in range(1000):
        assert isinstance(put(host, b"%d" % number)[0], int)
    assert host.visible_blocks == 4


def test_a_reader_that_died_holds_nothing_for_longer_than_its_lease() -> None:
    """LMCache 1034, 987, 1130: leaked references starved the pool."""
    host = tier(1)
    put(host, b"k0")
    host.read([b"k0"], ONE, 1.0)
    assert host.next_deadline() == 6.0
    assert host.expire(5.9) == 0 and host.expire(6.0) == 1
    assert host.next_deadline() is None
    assert not host.release(ONE, 6.0)
    assert put(host, b"k1", now=6.0) == [0]


def test_a_lease_that_has_run_out_protects_nothing_swept_or_not() -> None:
    """Mooncake 850: a reader outlived its lease. (Generations then tell it.)"""
    host = tier(1)
    put(host, b"k0")
    host.read([b"k0"], ONE, 0.0)
    assert put(host, b"k1", now=5.0) == [0]


def test_leases_are_ended_by_their_ids() -> None:
    """LMCache 3770: an unlock computed the key anew, without the salt, and unlocked another."""
    host = tier(1)
    put(host, b"k0")
    host.read([b"k0"], ONE, 0.0)
    host.read([b"k0"], TWO, 0.0)
    assert host.release(ONE, 0.0) and not host.release(ONE, 0.0)
    assert put(host, b"k1") == [Declined(DeclineReason.FULL)]
    assert host.release(TWO, 0.0)
    assert put(host, b"k1") == [0]


def test_a_pin_is_a_mark_and_no_count() -> None:
    """LMCache 2785, 3381: pins leaked, and were taken off twice."""
    host = tier(2)
    put(host, b"k0", b"k1")
    assert [host.pin([b"k0"], 0.0), host.pin([b"k0"], 0.0)] == [1, 1]
    assert host.stats(1).pinned_blocks == 1
    assert [host.unpin([b"k0"]), host.unpin([b"k0"])] == [1, 0]
    put(host, b"x0", b"x1")
    assert b"k0" not in host


def test_a_pinned_block_stays() -> None:
    host = tier(2)
    put(host, b"k0")
    host.pin([b"k0"], 0.0)
    for number in range(5):
        assert put(host, b"%d" % number) == [1]
    assert b"k0" in host


def test_pins_leave_half_of_the_slots_to_others() -> None:
    host = tier(4)
    put(host, *CHAIN)
    assert host.pin(CHAIN, 0.0) == 2
    assert put(host, b"x0", b"x1") == [3, 2]


def test_a_clear_takes_pinned_blocks_too_and_waits_for_readers() -> None:
    """LMCache's /clear-cache bypasses locks: who reads meanwhile reads what comes next."""
    host = tier(1)
    put(host, b"k0")
    host.pin([b"k0"], 0.0)
    host.read([b"k0"], ONE, 0.0)
    assert host.clear() == 1
    assert (host.present([b"k0"]), host.leaving_slots, host.stats(1).pinned_blocks) == (0, 1, 0)
    assert put(host, b"k0") == [Declined(DeclineReason.FULL)], "its slot is still read"
    host.release(ONE, 0.0)
    assert (host.leaving_slots, host.free_slots) == (0, 1)
    assert put(host, b"k0") == [0]


def test_a_clear_cancels_what_is_being_written() -> None:
    host = tier(2)
    host.begin_put(b"k0", None, A, 0.0)
    assert host.clear(A) == 1 and host.clear(A) == 0
    assert host.begin_put(b"k0", None, A, 0.0) == Declined(DeclineReason.KNOWN)
    assert not host.end_put(b"k0", True, 0.0)
    assert host.free_slots == 2 and host.present([b"k0"]) == 0


def test_a_clear_can_be_of_one_tenant_or_of_some_blocks() -> None:
    host = tier(4)
    put(host, b"a0", b"a1")
    put(host, b"b0", b"b1", tenant=B)
    assert host.clear(B, [b"a0", b"b1"]) == 1
    assert host.clear(A) == 2
    assert list(host.keys) == [b"b0"]


def test_whoever_is_gone_writes_and_reads_nothing() -> None:
    """A writer or reader that dies leaves neither slots nor leases behind."""
    host = tier(4)
    put(host, b"k0")
    host.begin_put(b"k1", b"k0", A, 0.0, writer="w")
    host.begin_put(b"k2", b"k1", A, 0.0, writer="other")
    host.read([b"k0"], ONE, 0.0, holder="w")
    host.hold([b"k0"], TWO, holder="disk")
    assert host.abandon("w", 0.0) == 2 and host.abandon("w", 0.0) == 0
    assert (host.writing_slots, host.stats(1).leases) == (1, 1)


def test_the_stores_own_work_has_no_time_limit_and_is_no_use() -> None:
    host = tier(2)
    put(host, b"old")
    put(host, b"new")
    assert host.hold([b"old"], ONE, holder="disk") == (0,)
    assert host.next_deadline() is None and host.expire(1e9) == 0
    assert host.stats(1).hit_blocks_total == 0
    assert put(host, b"newer") == [1], "the only one that nobody holds"
    assert host.release(ONE, 0.0)
    assert put(host, b"newest") == [0], "and still the least recently used"


def test_ends_of_chains_go_before_beginnings() -> None:
    host = tier(4)
    put(host, *CHAIN)
    put(host, b"x0", b"x1")
    assert host.present(CHAIN) == 2


def test_a_long_prompt_does_not_push_out_its_own_beginning() -> None:
    host = tier(4)
    answers = put(host, *[b"k%d" % number for number in range(6)])
    assert answers[:4] == [0, 1, 2, 3]
    assert answers[4:] == [Declined(DeclineReason.FULL), Declined(DeclineReason.ORPHAN)]
    assert host.visible_blocks == 4


def test_a_block_without_its_parent_pushes_nothing_out() -> None:
    """Mooncake 4153: parts of a prefix are of no use. But the parent may be on disk."""
    host = tier(2)
    put(host, b"k0")
    assert host.begin_put(b"x1", b"x0", A, 0.0, needs_parent=True) == 1, "a free slot it may have"
    host.end_put(b"x1", True, 0.0)
    orphan = host.begin_put(b"y1", b"y0", A, 0.0, needs_parent=True)
    assert orphan == Declined(DeclineReason.ORPHAN)
    assert host.begin_put(b"y1", b"y0", A, 0.0) == 0


def test_a_block_can_come_before_its_parent() -> None:
    """From a slower tier, or because the parent was declined: the chain is whole in the end."""
    host = tier(3)
    host.begin_put(b"k1", b"k0", A, 0.0)
    host.end_put(b"k1", True, 0.0)
    assert host.present([b"k0", b"k1"]) == 0
    put(host, b"k0")
    assert host.present([b"k0", b"k1"]) == 2
    put(host, b"x0", b"x1")
    assert host.present([b"k0", b"k1"]) == 1, "and its end goes first"


@pytest.mark.parametrize("cycle", [[b"a"], [b"a", b"b"], [b"a", b"b", b"c"]])
def test_a_chain_that_bites_its_tail_is_declined(cycle: list[bytes]) -> None:
    """Parents come from the wire: a loop could never be evicted."""
    host = tier(4)
    answers = []
    for place, key in enumerate(cycle):
        answers.append(host.begin_put(key, cycle[place - 1], A, 0.0))
    assert answers[-1] == Declined(DeclineReason.LOOP)
    assert not any(isinstance(answer, Declined) for answer in answers[:-1])


def test_a_known_block_is_declined_and_counts_as_used() -> None:
    host = tier(2)
    put(host, b"old")
    put(host, b"new")
    assert put(host, b"old") == [Declined(DeclineReason.KNOWN)]
    put(host, b"newer")
    assert b"old" in host and b"new" not in host


def test_a_reader_that_puts_what_it_read_counts_once() -> None:
    host = tier(2)
    put(host, b"old")
    put(host, b"new")
    for key, lease in ((b"old", ONE), (b"new", TWO)):
        host.read([key], lease, 1.0)
        host.release(lease, 1.0)
    assert put(host, b"old", now=2.0) == [Declined(DeclineReason.KNOWN)]
    put(host, b"newer", now=2.0)
    assert b"new" in host and b"old" not in host


def test_a_tenant_at_its_quota_gives_up_its_own() -> None:
    """LMCache PR 3892: hard isolation by tenant is wanted."""
    host = tier(4, share=0.5)
    put(host, b"b0", tenant=B)
    put(host, b"a0")
    put(host, b"a1")
    put(host, b"a2")
    assert host.tenants() == (
        TenantUse(tenant=A, blocks=2, limit_blocks=2),
        TenantUse(tenant=B, blocks=1, limit_blocks=2),
    )
    assert b"a0" not in host and host.free_slots == 1
    host.read([b"a1"], ONE, 0.0)
    host.read([b"a2"], TWO, 0.0)
    assert put(host, b"a3") == [Declined(DeclineReason.QUOTA)]


def test_a_flood_of_one_tenant_leaves_others_what_is_guaranteed() -> None:
    host = tier(20)
    for number in range(5):
        put(host, b"b%d" % number, tenant=B)
    for number in range(500):
        assert isinstance(put(host, b"a%d" % number)[0], int)
    assert [use.blocks for use in host.tenants()] == [15, 5], "20 / 2, shared by two"


def test_a_tenant_that_went_away_is_guaranteed_nothing() -> None:
    host = tier(20)
    for number in range(5):
        put(host, b"b%d" % number, tenant=B)
    for number in range(500):
        put(host, b"a%d" % number, now=600.0)
    assert [use.tenant for use in host.tenants()] == [A]


def test_tenants_get_shares_like_what_they_put() -> None:
    host, draws = tier(100), Draws(1)
    for number in range(4000):
        put(host, b"%d" % number, tenant=draws.choice((A, A, B), number))
    a, b = (use.blocks for use in host.tenants())
    assert a + b == 100 and 55 <= a <= 75, "two to one"


def test_too_many_leases_are_misses() -> None:
    host = tier(leases=1)
    put(host, b"k0")
    assert host.read([b"k0"], ONE, 0.0) == (0,)
    assert host.read([b"k0"], TWO, 0.0) == ()
    assert dict(host.stats(1).dropped) == {"leases": 1}
    assert host.read([b"k0"], TWO, 5.0) == (0,)


def test_counts() -> None:
    host = tier(2)
    put(host, b"k0", b"k1")
    host.read([b"k0", b"k1", b"k2"], ONE, 0.0)
    host.release(ONE, 0.0)
    put(host, b"k3")
    stats = host.stats(100)
    assert (stats.tier, stats.blocks, stats.used_bytes, stats.limit_bytes) == (
        Tier.HOST,
        2,
        200,
        200,
    )
    assert (stats.put_blocks_total, stats.evicted_blocks_total) == (3, 1)
    assert (stats.hit_blocks_total, stats.missed_blocks_total, stats.leases) == (2, 1, 0)


def test_misuse_is_a_bug() -> None:
    host = tier()
    with pytest.raises(BugError, match="not being written"):
        host.end_put(b"k0", True, 0.0)
    put(host, b"k0")
    with pytest.raises(BugError, match="not being written"):
        host.end_put(b"k0", True, 0.0)
    host.read([b"k0"], ONE, 0.0)
    with pytest.raises(BugError, match="opened twice"):
        host.read([b"k0"], ONE, 0.0)
    for slots, share in ((0, 1.0), (4, 0.0), (4, 1.5)):
        with pytest.raises(BugError, match="make no sense"):
            tier(slots, share=share)
