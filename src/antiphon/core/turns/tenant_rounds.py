"""Whose turn it is among tenants: deficit round robin by what was served, not by what was asked.

In each round a tenant may be served one quantum. What its last request takes beyond that is taken
off its next rounds (surplus round robin), so a request of any size is served without saving up for
it. A tenant that had nothing to serve has saved nothing: it joins in the present round.

    served  ──►  round = served // quantum + 1          smallest round first, then place in the ring
              a tenant that joins, or was left behind: served = (present round - 1) · quantum

Law: what two tenants that wait count as served differs by less than a quantum and the largest
request. So over any time in which both wait, what they get differs by less than twice that,
however many requests either sends. (Shreedhar & Varghese, SIGCOMM 1995; what an answer takes is
known at its end and counted then, as in VTC: Sheng et al., OSDI 2024.)
"""

from typing import TypeAlias

from antiphon.errors import BugError

Tenant: TypeAlias = bytes
"""Its salt: see `types.Request`."""
_KEPT = 64
"""So many tenants that wait for nothing are remembered before it is looked who owes something."""


class TenantRounds:
    """One class's tenants. Counts tokens of prompt and output."""

    def __init__(self, quantum_tokens: int) -> None:
        self._quantum = quantum_tokens
        self._served: dict[Tenant, int] = {}
        self._ring: dict[Tenant, int] = {}
        """Those that wait for something, by when they began to."""
        self._joined = 0
        self._round = 1

    def __len__(self) -> int:
        """Of how many tenants something is kept."""
        return len(self._ring.keys() | self._served.keys())

    def join(self, tenant: Tenant) -> None:
        """Mutates: it waits for something. No effect if it did already."""
        if tenant not in self._ring:
            self._joined += 1
            self._ring[tenant] = self._joined

    def leave(self, tenant: Tenant) -> None:
        """Mutates: it waits for nothing any more. What it was served beyond its share stays."""
        del self._ring[tenant]
        self._forget()

    def served(self, tenant: Tenant) -> int:
        """What it counts as served."""
        return max(self._served.get(tenant, 0), (self._round - 1) * self._quantum)

    def turn(self, tenant: Tenant, served: int) -> tuple[int, int]:
        """Who has the smallest is next, were `served` what this tenant, which waits, had got.

        Unique among those that wait.
        """
        return self.round_of(served), self._ring[tenant]

    def round_of(self, served: int) -> int:
        """In which round a tenant is that was served so much."""
        return served // self._quantum + 1

    def serve(self, tenant: Tenant, tokens: int) -> None:
        """Mutates: it gets so much. Its round is the present one."""
        if tokens < 0:
            raise BugError(f"{tokens} tokens are served")
        served = self.served(tenant)
        self._round = max(self._round, self.round_of(served))
        self._served[tenant] = served + tokens

    def correct(self, tenant: Tenant, tokens: int) -> None:
        """Mutates: it got so many tokens more, or fewer, than was thought."""
        self._served[tenant] = max(0, self.served(tenant) + tokens)
        self._forget()

    def _forget(self) -> None:
        """Whoever neither waits nor owes something is as if it had never been here."""
        if len(self._served) <= len(self._ring) + _KEPT:
            return
        floor = (self._round - 1) * self._quantum
        self._served = {
            tenant: served
            for tenant, served in self._served.items()
            if tenant in self._ring or served > floor
        }
