"""What each tenant has on the workers, and who has less than the others."""

from collections.abc import Set

from antiphon.types import RequestId

from .tenant_rounds import Tenant


class TenantLoads:
    """Tokens of the requests that workers have. Mutable; one entry for each of them."""

    def __init__(self) -> None:
        self._of: dict[RequestId, tuple[Tenant, int]] = {}
        self._tokens: dict[Tenant, int] = {}
        """Of those that have any request there."""
        self._total = 0

    def requests(self) -> Set[RequestId]:
        """Those that count."""
        return self._of.keys()

    def put(self, request: RequestId, tenant: Tenant, tokens: int) -> None:
        """A worker has got it, or another one has. Mutates."""
        self.drop(request)
        tokens = max(1, tokens)
        self._of[request] = (tenant, tokens)
        self._tokens[tenant] = self._tokens.get(tenant, 0) + tokens
        self._total += tokens

    def drop(self, request: RequestId) -> None:
        """No worker has it. Mutates; no effect if none had."""
        tenant, tokens = self._of.pop(request, (b"", 0))
        if not tokens:
            return
        self._total -= tokens
        self._tokens[tenant] -= tokens
        if not self._tokens[tenant]:
            del self._tokens[tenant]

    def share(self, request: RequestId, tenant: Tenant, tokens: int) -> float:
        """What its tenant has, with this request of so many tokens, over the mean of all tenants.

        1 if the tenant is alone; not below 1 for all at once. Does not mutate.
        """
        tokens = max(1, tokens) - (self._of[request][1] if request in self._of else 0)
        own = self._tokens.get(tenant, 0) + tokens
        tenants = len(self._tokens) + (tenant not in self._tokens)
        return own * tenants / (self._total + tokens)

    def overtaken(self, tenant: Tenant) -> float:
        """What part of all is of tenants with less than half of what this one has: below 1.

        So much of what the workers do goes before what this tenant has waiting. Looks at all
        tenants; does not mutate.
        """
        own = self._tokens.get(tenant, 0)
        if not own:
            return 0.0
        return sum(tokens for tokens in self._tokens.values() if 2 * tokens < own) / self._total
