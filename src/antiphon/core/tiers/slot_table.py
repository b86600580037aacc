"""Which slots are free, whose the others are, and who gives one up for whom."""

from antiphon.errors import BugError
from antiphon.types import BlockKey, Seconds

from .eviction import PolicyFactory
from .held_block import HeldBlock, Slot
from .tenant_account import TenantAccount, TenantUse

_GUARANTEED_SHARE = 0.5
"""Of all slots: divided by the tenants, what each keeps whatever the others put."""
_ACTIVE_S = 600.0
"""A tenant that neither put nor read for so long is guaranteed nothing."""
_STEPS = 64
"""How far the hand goes for one victim: it goes on from there the next time."""


class SlotTable:
    """All slots, the accounts of their tenants, and the hand that chooses among tenants.

    Slots are given out from the lowest on, so that memory which was never needed is never touched.
    """

    def __init__(self, slots: int, *, tenant_share: float, policy: PolicyFactory) -> None:
        if slots < 1 or not 0.0 < tenant_share <= 1.0:
            raise BugError(f"{slots} slots, {tenant_share} of them a tenant, make no sense")
        self.total = slots
        self.quota = max(1, int(slots * tenant_share))
        self._policy = policy
        self._free = list(range(slots - 1, -1, -1))
        self._blocks: list[HeldBlock | None] = [None] * slots
        self._accounts: dict[bytes, TenantAccount] = {}
        self._hand = -1

    @property
    def free(self) -> int:
        """Slots without a block."""
        return len(self._free)

    @property
    def guaranteed(self) -> int:
        """Slots that an active tenant does not lose to others."""
        return int(self.total * _GUARANTEED_SHARE) // max(1, len(self._accounts))

    def account(self, tenant: bytes, now: Seconds) -> TenantAccount:
        """The tenant's account, now active; a new one counts only once it has a slot."""
        account = self._accounts.get(tenant)
        if account is None:
            return TenantAccount(tenant, self._policy(), active_at=now)
        account.active_at = now
        return account

    def is_at_quota(self, account: TenantAccount) -> bool:
        """Whether the tenant has all that it may have, though others may have more."""
        return self.quota < self.total and account.slots >= self.quota

    def take(self, account: TenantAccount) -> Slot:
        """A free slot, from now on the tenant's."""
        self._accounts[account.tenant] = account
        account.slots += 1
        return self._free.pop()

    def fill(self, block: HeldBlock) -> None:
        """The block lies in its slot, which was taken for it."""
        self._blocks[block.slot] = block

    def give_back(self, block: HeldBlock) -> None:
        """The block's slot is free. A tenant without slots is forgotten, with its history."""
        if self._blocks[block.slot] is not block:
            raise BugError(f"slot {block.slot} is given back, but it is another block's")
        self._blocks[block.slot] = None
        self._free.append(block.slot)
        block.account.slots -= 1
        if not block.account.slots:
            del self._accounts[block.account.tenant]

    def victim(self, putter: TenantAccount, now: Seconds) -> BlockKey | None:
        """Whose block goes so that `putter` may put one; None: nothing can go. Moves the hand."""
        if self.is_at_quota(putter):
            return putter.policy.victim()
        guaranteed = self.guaranteed
        for _ in range(min(_STEPS, self.total)):
            self._hand = (self._hand + 1) % self.total
            block = self._blocks[self._hand]
            if block is None:
                continue
            account = block.account
            if account is not putter and self._is_spared(account, guaranteed, now):
                continue
            if (victim := account.policy.victim()) is not None:
                return victim
        return putter.policy.victim()

    def uses(self) -> tuple[TenantUse, ...]:
        """Counts of each tenant that has slots, by name."""
        return tuple(
            TenantUse(tenant=tenant, blocks=account.slots, limit_blocks=self.quota)
            for tenant, account in sorted(self._accounts.items())
        )

    def _is_spared(self, account: TenantAccount, guaranteed: int, now: Seconds) -> bool:
        return account.slots <= guaranteed and now - account.active_at < _ACTIVE_S
