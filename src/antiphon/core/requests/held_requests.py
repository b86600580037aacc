"""Requests that wait for a worker, in the order in which they are to have one.

    class ─► those that a worker had before ─► tenants in turn ─► urgency ─► arrival

Nobody who can be placed waits for somebody who can't: whoever is asked for in vain is passed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from antiphon.core.turns import PriorityClass, Tenant, TenantRounds, Waiting
from antiphon.core.urgency import urgency
from antiphon.types import Request, RequestId, RequestRecord, Seconds

from .request_costs import RequestCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShares:
    """`quantum_tokens`: what a tenant may be served in a round. `ttft_s`: the target of requests
    that bring none."""

    quantum_tokens: int = 512
    ttft_s: Seconds = float("inf")


@dataclass(slots=True)
class _Held:
    priority: int
    tenant: Tenant | None
    """None: it goes before those who have one."""
    one: Waiting[RequestId]
    not_before: Seconds


@dataclass(frozen=True, slots=True)
class _Charge:
    priority: int
    tenant: Tenant
    tokens: int


class HeldRequests:
    """A queue whose order depends on what was taken from it before.

    `wake_at` is when somebody in it must be asked for again, at the latest. Those who were never
    asked for, since others wait before them, have no time of their own: one of the others has.
    Without `shares` there are no tenants: for those whose turn has come already.
    """

    def __init__(
        self, shares: FairShares | None = None, rounds: type[TenantRounds] = TenantRounds
    ) -> None:
        self._shares, self._rounds = shares, rounds
        self._costs = RequestCosts()
        self._classes: dict[int, PriorityClass[RequestId]] = {}
        self._held: dict[RequestId, _Held] = {}
        self._charged: dict[RequestId, _Charge] = {}
        """For each that was taken and is not over, what its tenant was charged."""
        self._ask_at: dict[RequestId, Seconds] = {}
        """For those that have a time of their own."""
        self._wake_at: Seconds | None = None

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, id: object) -> bool:
        return id in self._held

    @property
    def wake_at(self) -> Seconds | None:
        """None: nobody waits."""
        return self._wake_at if self._held else None

    @property
    def charged(self) -> int:
        """How many requests that are not over were charged for."""
        return len(self._charged)

    # ── who waits: all of these mutate ───────────────────────────────────────────────────────

    def put(
        self,
        request: Request,
        arrival: int,
        arrived_at: Seconds,
        not_before: Seconds | None = None,
    ) -> None:
        """`request`, which must not be here, waits, and is not asked for earlier.

        Without `not_before` the caller asks for it now if it is next.
        """
        shares, tenant = self._shares, None
        if shares is not None and request.id not in self._charged:
            tenant = request.tenant_salt
        due_at = urgency(request, arrived_at, float("inf") if shares is None else shares.ttft_s)
        cost = self._costs.expected(request)
        one = Waiting(due_at, arrival, request.id, cost, len(request.prompt))
        earliest = float("-inf") if not_before is None else not_before
        self._held[request.id] = _Held(request.priority, tenant, one, earliest)
        self._class(request.priority).put(one, tenant)
        if not_before is not None:
            self.hold(request.id, not_before)

    def take(self, id: RequestId) -> None:
        """A worker has it: its tenant is charged for it, once for all attempts."""
        held = self._held[id]
        self.remove(id)
        if held.tenant is not None:
            self._charged[id] = _Charge(held.priority, held.tenant, held.one.cost)
            self._classes[held.priority].rounds.serve(held.tenant, held.one.cost)

    def remove(self, id: RequestId) -> None:
        """It waits no more, and nobody has it. No effect on who is not here."""
        held = self._held.pop(id, None)
        self._ask_at.pop(id, None)
        if held is not None:
            self._classes[held.priority].remove(held.one, held.tenant)

    def over(self, record: RequestRecord) -> None:
        """A request, which does not wait, has ended: what it took is known now."""
        charge = self._charged.pop(record.request, None)
        if charge is not None:
            rounds = self._classes[charge.priority].rounds
            rounds.correct(charge.tenant, self._costs.actual(record) - charge.tokens)

    def hold(self, id: RequestId, ask_at: Seconds) -> None:
        """It was asked for in vain; the answer may change by itself at `ask_at`."""
        self._ask_at[id] = ask_at
        self._wake_at = ask_at if self._wake_at is None else min(self._wake_at, ask_at)

    def asked(self, now: Seconds) -> None:
        """The first ones were asked for just now, and all who can have a worker left."""
        self._ask_at = {id: at for id, at in self._ask_at.items() if at > now}
        self._wake_at = min(self._ask_at.values(), default=None)

    # ── in which order ───────────────────────────────────────────────────────────────────────

    def is_next(self, id: RequestId, now: Seconds) -> bool:
        """Does nobody wait before it who may be asked for now?"""
        return next(self.ready(now), None) == id

    def ready(self, now: Seconds) -> Iterator[RequestId]:
        """Who may be asked for now, in order; they may be taken on the way.

        Those who come meanwhile are not in it.
        """
        for priority in sorted(self._classes):
            for one in self._classes[priority].order():
                held = self._held.get(one.id)
                if held is not None and held.not_before <= now:
                    yield one.id

    def ahead(self, id: RequestId) -> tuple[int, int]:
        """Of whom waits, about how many go before it, and the tokens of their prompts."""
        held = self._held[id]
        requests, tokens = self._classes[held.priority].ahead(held.one, held.tenant)
        for priority, others in self._classes.items():
            if priority < held.priority:
                more, their_tokens = others.total()
                requests, tokens = requests + more, tokens + their_tokens
        return requests, tokens

    def surplus(self) -> RequestId | None:
        """Who leaves if there is no room for all: of the last class, the last one of the tenant
        that has most there. None: whoever waits has been served before."""
        for priority in sorted(self._classes, reverse=True):
            if (last := self._classes[priority].surplus()) is not None:
                return last
        return None

    def _class(self, priority: int) -> PriorityClass[RequestId]:
        found = self._classes.get(priority)
        if found is None:
            shares = self._shares or FairShares()
            rounds = self._rounds(shares.quantum_tokens)
            found = self._classes[priority] = PriorityClass(rounds)
        return found
