"""Laws of the host tier, and faulty tiers that they find.

Slots are conserved; a slot that somebody reads, writes or pinned is nobody else's; only what was
written is found; children go before parents; quotas and guarantees hold; events tell the truth.
"""

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tier_machine import TierMachine

from antiphon.core.tiers import HostTier
from antiphon.errors import BugError
from antiphon.types import LeaseId

SETTINGS = settings(max_examples=40, stateful_step_count=40, deadline=None)


class LeastRecentTier(TierMachine):
    policy = "lru"


class S3FifoTier(TierMachine):
    policy = "s3-fifo"


class RecomputeCostTier(TierMachine):
    policy = "cost"


class OneSlot(TierMachine):
    slots = 1
    tenant_share = 1.0


class NoQuota(TierMachine):
    slots = 5
    tenant_share = 1.0


for _machine in (TierMachine, LeastRecentTier, S3FifoTier, RecomputeCostTier, OneSlot, NoQuota):
    _machine.TestCase.settings = SETTINGS
TestTier = TierMachine.TestCase
TestLeastRecentTier = LeastRecentTier.TestCase
TestS3FifoTier = S3FifoTier.TestCase
TestRecomputeCostTier = RecomputeCostTier.TestCase
TestOneSlot = OneSlot.TestCase
TestNoQuota = NoQuota.TestCase


# ── negative controls ─────────────────────────────────────────────────────────────────────────


class ReusesLeased(HostTier):
    """Forgets that somebody reads."""

    def _lease(self, blocks, lease, holder, now):
        slots = super()._lease(blocks, lease, holder, now)
        for block in blocks:
            block.leases -= 1
            self._blocks.weigh(block)
            block.leases += 1
        return slots


class ShowsEarly(HostTier):
    """A block is found before it is written.

    LMCache 4991: a failed write stayed visible.
    """

    def begin_put(self, key, parent, tenant, now, **more):
        slot = super().begin_put(key, parent, tenant, now, **more)
        if isinstance(slot, int):
            super().end_put(key, True, now)
        return slot

    def end_put(self, key, good, now):
        return good


class KeepsFailed(HostTier):
    """A failed write is shown."""

    def end_put(self, key, good, now):
        return super().end_put(key, True, now)


class ShowsCleared(HostTier):
    """What was cleared while it was written is shown."""

    def _forget(self, block):
        return True if block.key not in self else super()._forget(block)


class IgnoresQuota(HostTier):
    """One tenant may have all."""

    def __init__(self, **given):
        super().__init__(**{**given, "tenant_share": 1.0})


class SparesNobody(HostTier):
    """Others' blocks go, however few they have."""

    def __init__(self, **given):
        super().__init__(**given)
        self._slots._is_spared = lambda account, guaranteed, now: False


class ParentsFirst(HostTier):
    """Does not know what continues what."""

    def __init__(self, **given):
        super().__init__(**given)
        self._blocks.link = self._blocks.unlink = lambda parent: None


class TakesOrphans(HostTier):
    """Blocks that nobody finds push out others."""

    def _make_room(self, account, now, *, evict):
        return super()._make_room(account, now, evict=True)


class EvictsPinned(HostTier):
    """A pin is counted, and forgotten."""

    def _mark(self, block, pinned):
        super()._mark(block, pinned)
        block.pinned = False
        self._blocks.weigh(block)
        block.pinned = pinned


class Leaks(HostTier):
    """A slot that was cleared under a lease never comes back."""

    def _end_lease(self, lease):
        one = self._leases._leases.get(lease)
        for block in one.blocks if one is not None else ():
            if block.key not in self:
                block.leases += 1
        return super()._end_lease(lease)


class Touchy(HostTier):
    """A probe keeps what it finds.

    Mooncake 2187: existence probes renewed leases, so that eviction found nothing.
    """

    def present(self, keys):
        probe = LeaseId(f"probe {self.stats(1).hit_blocks_total}")
        return len(self.read(keys, probe, 0.0))


class Mute(HostTier):
    """Does not tell of what it evicts."""

    def _make_room(self, account, now, *, evict):
        listen, self._listen = self._listen, lambda change: None
        try:
            return super()._make_room(account, now, evict=evict)
        finally:
            self._listen = listen


@pytest.mark.parametrize(
    "faulty",
    [
        ReusesLeased,
        ShowsEarly,
        KeepsFailed,
        ShowsCleared,
        IgnoresQuota,
        SparesNobody,
        ParentsFirst,
        TakesOrphans,
        EvictsPinned,
        Leaks,
        Touchy,
        Mute,
    ],
)
def test_the_laws_find_a_faulty_tier(faulty: type[HostTier]) -> None:

    class Machine(TierMachine):
        tier_class = faulty
        slots = 8 if faulty is SparesNobody else 4
        tenant_share = 0.5 if faulty is IgnoresQuota else 1.0

    search = settings(
        SETTINGS,
        max_examples=2000,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate],
    )
    with pytest.raises((AssertionError, BugError, KeyError)):
        run_state_machine_as_test(Machine, settings=search)
