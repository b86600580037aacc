"""Those of one priority class that wait for the same thing, tenant by tenant."""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Generic, NamedTuple, TypeVar

from antiphon.errors import BugError
from antiphon.types import Seconds

from .tenant_rounds import Tenant, TenantRounds

IdT = TypeVar("IdT", bound=Hashable)
"""By which whoever asks knows who waits."""


class Waiting(NamedTuple, Generic[IdT]):
    """One that waits. In its line those with the smaller urgency go first, then the earlier."""

    urgency: Seconds
    arrival: int
    """Those with equal ones have ids with an order."""
    id: IdT
    cost: int
    """Tokens that it is expected to take."""
    prompt: int
    """Tokens of its prompt."""


class PriorityClass(Generic[IdT]):
    """Lines, and whose turn it is. `first` goes before all tenants' lines."""

    def __init__(self, rounds: TenantRounds) -> None:
        self.rounds = rounds
        self._first: list[Waiting[IdT]] = []
        self._lines: dict[Tenant, list[Waiting[IdT]]] = {}
        self._tokens: dict[Tenant, int] = {}
        """Of all prompts in a line."""

    def __bool__(self) -> bool:
        """Whether somebody waits."""
        return bool(self._first or self._lines)

    # ── who waits ────────────────────────────────────────────────────────────────────────────

    def put(self, one: Waiting[IdT], tenant: Tenant | None) -> None:
        """Mutates. Without a tenant it goes before all who have one."""
        if tenant is None:
            insort(self._first, one)
            return
        self.rounds.join(tenant)
        insort(self._lines.setdefault(tenant, []), one)
        self._tokens[tenant] = self._tokens.get(tenant, 0) + one.prompt

    def remove(self, one: Waiting[IdT], tenant: Tenant | None) -> None:
        """Mutates: the reverse of `put`."""
        line = self._first if tenant is None else self._lines[tenant]
        place = bisect_left(line, one)
        if line[place : place + 1] != [one]:
            raise BugError(f"{one.id} does not wait")
        del line[place]
        if tenant is None:
            return
        self._tokens[tenant] -= one.prompt
        if not line:
            del self._lines[tenant], self._tokens[tenant]
            self.rounds.leave(tenant)

    # ── in which order ───────────────────────────────────────────────────────────────────────

    def head(self) -> Waiting[IdT] | None:
        """Who is served next; None: nobody waits. As the first of `order`."""
        if self._first:
            return self._first[0]
        if not self._lines:
            return None
        rounds = self.rounds
        tenant = min(self._lines, key=lambda one: rounds.turn(one, rounds.served(one)))
        return self._lines[tenant][0]

    def order(self) -> Iterator[Waiting[IdT]]:
        """All that wait now, as they would be served if each could be. May change meanwhile.

        Whoever can't be served uses up its tenant's turn in this order, and nothing of its share.
        """
        yield from tuple(self._first)
        rounds = self.rounds
        lines = {tenant: iter(tuple(line)) for tenant, line in self._lines.items()}
        served = {tenant: rounds.served(tenant) for tenant in lines}
        turns = [(rounds.turn(tenant, served[tenant]), tenant) for tenant in lines]
        places = {tenant: place for (_, place), tenant in turns}
        heapify(turns)
        while turns:
            tenant = turns[0][1]
            one = next(lines[tenant], None)
            if one is None:
                heappop(turns)
                continue
            yield one
            served[tenant] += one.cost
            number = rounds.round_of(served[tenant])
            heapreplace(turns, ((number, places[tenant]), tenant))

    def place(self, one: Waiting[IdT], tenant: Tenant | None) -> int:
        """How many go before it, about: of its own line those before it; of others as many."""
        if tenant is None:
            return bisect_left(self._first, one)
        before = bisect_left(self._lines[tenant], one)
        others = (len(line) for other, line in self._lines.items() if other != tenant)
        return len(self._first) + before + sum(min(before + 1, length) for length in others)

    def ahead(self, one: Waiting[IdT], tenant: Tenant | None) -> tuple[int, int]:
        """How many go before it, about, and the tokens of their prompts.

        Of its own line those before it; of each other tenant as much as of its own.
        """
        line = self._first if tenant is None else self._lines[tenant]
        place = bisect_left(line, one)
        requests, tokens = place, sum(other.prompt for other in line[:place])
        if tenant is None:
            return requests, tokens
        share = tokens + one.prompt
        for other, total in self._tokens.items():
            if other != tenant:
                part = min(1.0, share / max(1, total))
                requests += round(part * len(self._lines[other]))
                tokens += round(part * total)
        requests += len(self._first)
        return requests, tokens + sum(other.prompt for other in self._first)

    def total(self) -> tuple[int, int]:
        """How many wait, and the tokens of their prompts."""
        requests = len(self._first) + sum(map(len, self._lines.values()))
        tokens = sum(one.prompt for one in self._first)
        return requests, tokens + sum(self._tokens.values())

    def surplus(self) -> IdT | None:
        """The last one of whoever has most that wait; None: nobody has a line."""
        if not self._lines:
            return None
        longest = max(self._lines, key=lambda tenant: (len(self._lines[tenant]), tenant))
        return self._lines[longest][-1].id
