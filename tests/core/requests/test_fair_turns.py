"""Turns of tenants: shares, no starvation, no idling, nothing kept. And who breaks these laws."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.requests.held_requests import FairShares, HeldRequests
from antiphon.core.turns import TenantRounds
from antiphon.testing.request_records import request_record
from antiphon.types import Outcome, Request, RequestId, RequestRecord, SamplingParams

QUANTUM, LARGEST = 10, 25
LEAD = QUANTUM + LARGEST
"""By so much what two tenants that wait count as served never differs."""
TENANTS = (b"a", b"b", b"c")


def request(number: int, tenant: bytes, tokens: int, priority: int = 0) -> Request:
    return Request(
        id=RequestId(f"r{number}"),
        prompt=(1,) * tokens,
        sampling=SamplingParams(seed=0, max_tokens=0),
        priority=priority,
        tenant_salt=tenant,
    )


def record_of(asked: Request, output: int = 0) -> RequestRecord:
    return request_record(
        asked.id,
        outcome=Outcome.CANCELLED,
        finish_reasons=(),
        prompt_tokens=len(asked.prompt),
        output_tokens=output,
    )


@dataclass
class Played:
    """A queue that requests come to, and somebody who takes the next one."""

    rounds: type[TenantRounds] = TenantRounds
    waiting: dict[RequestId, Request] = field(default_factory=dict)
    taken: dict[RequestId, Request] = field(default_factory=dict)
    served: Counter[bytes] = field(default_factory=Counter)
    since: dict[frozenset[bytes], tuple[int, int]] = field(default_factory=dict)
    """For two tenants that both wait: what each had been served when that began."""
    before: dict[RequestId, tuple[int, Counter[bytes]]] = field(default_factory=dict)
    """What its tenant had waiting when a request came, itself included, and what all had got."""

    def __post_init__(self) -> None:
        self.queue = HeldRequests(FairShares(quantum_tokens=QUANTUM), self.rounds)
        self.count = 0

    def come(self, tenant: bytes, tokens: int) -> None:
        self.count += 1
        asked = request(self.count, tenant, tokens)
        self.queue.put(asked, self.count, float(self.count))
        self.waiting[asked.id] = asked
        self.before[asked.id] = (self.own(tenant), self.served.copy())
        self.look()

    def own(self, tenant: bytes) -> int:
        return sum(len(one.prompt) for one in self.waiting.values() if one.tenant_salt == tenant)

    def take(self, skip: int = 0) -> None:
        order = list(self.queue.ready(0.0))
        assert sorted(order) == sorted(self.waiting), "all that wait can be asked for, once each"
        if not order:
            return
        asked = self.waiting.pop(RequestId(order[min(skip, len(order) - 1)]))
        self.queue.take(asked.id)
        self.taken[asked.id] = asked
        own, got = self.before.pop(asked.id)
        for tenant in TENANTS:
            more = self.served[tenant] - got[tenant]
            limit = own + 2 * LEAD
            assert skip or more < limit, f"{asked.id} waited for {more} tokens of {tenant!r}"
        self.served[asked.tenant_salt] += len(asked.prompt)
        self.look()

    def end(self, output: int = 0) -> None:
        if self.taken:
            asked = self.taken.pop(next(iter(self.taken)))
            self.queue.over(record_of(asked, output))

    def look(self) -> None:
        """The law of shares, for all who wait."""
        here = {one.tenant_salt for one in self.waiting.values()}
        pairs = {frozenset((one, two)) for one in here for two in here if one != two}
        self.since = {pair: self.since.get(pair) or self.got(pair) for pair in pairs}
        for pair, (one, two) in self.since.items():
            now_one, now_two = self.got(pair)
            apart = abs((now_one - one) - (now_two - two))
            assert apart < 2 * LEAD, f"{sorted(pair)} are {apart} tokens apart"

    def got(self, pair: frozenset[bytes]) -> tuple[int, int]:
        one, two = sorted(pair)
        return self.served[one], self.served[two]


comings = st.tuples(st.sampled_from(TENANTS), st.integers(1, LARGEST))
takings = st.none()
plays = st.lists(comings | takings, min_size=20, max_size=120)


def play(steps: list[tuple[bytes, int] | None], rounds: type[TenantRounds] = TenantRounds) -> None:
    played = Played(rounds)
    for step in steps:
        if step is None:
            played.take()
        else:
            played.come(*step)
    while played.waiting:
        played.take()
    while played.taken:
        played.end()
    assert not len(played.queue)
    assert not played.queue.charged
    assert played.queue.wake_at is None


@settings(deadline=None, max_examples=150)
@given(plays)
def test_shares_are_equal_nobody_starves_and_nothing_stays(
    steps: list[tuple[bytes, int] | None],
) -> None:
    play(steps)


def flood() -> list[tuple[bytes, int] | None]:
    """A tenant that has been served alone for long; two who come then; all have much."""
    alone = [step for _ in range(20) for step in ((b"a", LARGEST), None)]
    crowd = [(tenant, LARGEST) for _ in range(20) for tenant in TENANTS]
    return [*alone, *crowd, *([None] * 60)]


def test_a_tenant_that_was_alone_owes_nothing_and_others_have_saved_nothing() -> None:
    play(flood())


class NeverCharges(TenantRounds):
    def serve(self, tenant: bytes, tokens: int) -> None:
        pass


class SavesUp(TenantRounds):
    """Whoever was away has a claim to all that the others got."""

    def served(self, tenant: bytes) -> int:
        return self._served.get(tenant, 0)


class CountsRequests(TenantRounds):
    def serve(self, tenant: bytes, tokens: int) -> None:
        super().serve(tenant, QUANTUM)


@pytest.mark.parametrize("rounds", [NeverCharges, SavesUp])
def test_the_laws_find(rounds: type[TenantRounds]) -> None:
    with pytest.raises(AssertionError, match=r"apart|waited"):
        play(flood(), rounds)


def test_the_laws_find_who_counts_requests() -> None:
    small = [(b"b", 1) for _ in range(60)]
    large = [(b"a", LARGEST) for _ in range(60)]
    with pytest.raises(AssertionError, match=r"apart|waited"):
        play([*small, *large, *([None] * 100)], CountsRequests)


@settings(deadline=None, max_examples=50)
@given(plays, st.integers(1, 3))
def test_who_cant_be_placed_is_passed(steps: list[tuple[bytes, int] | None], skip: int) -> None:
    """Whoever is asked for in vain holds up nobody, and nothing is lost over it."""
    played = Played()
    for step in steps:
        if step is None:
            played.take(skip)
        else:
            played.come(*step)
        played.since.clear()
    assert set(played.queue.ready(0.0)) == set(played.waiting)


def test_what_an_answer_took_is_charged_at_its_end() -> None:
    played = Played()
    for tenant in (b"a", b"b") * 3:
        played.come(tenant, QUANTUM)
    played.take()
    played.take()
    played.end(output=QUANTUM)  # of a, whose request was taken first
    order = [played.waiting[RequestId(id)].tenant_salt for id in played.queue.ready(0.0)]
    assert order == [b"b", b"a", b"b", b"a"], "a has had its second turn already"


def test_a_flooding_tenant_counts_as_little_ahead_as_one_is_served_of_it() -> None:
    played = Played()
    for _ in range(50):
        played.come(b"a", 20)
    played.come(b"b", 20)
    requests, tokens = played.queue.ahead(RequestId("r51"))
    assert (requests, tokens) == (1, 20), "one of each other tenant's"
    assert played.queue.ahead(RequestId("r50")) == (50, 1000)


def test_of_a_full_queue_the_last_of_whoever_has_most_leaves() -> None:
    played = Played()
    assert played.queue.surplus() is None
    for tenant in (b"a", b"b", b"a", b"b", b"a", b"b", b"b"):
        played.come(tenant, 5)
    assert played.queue.surplus() == "r7"
    played.queue.put(request(8, b"a", 1, priority=3), 8, 8.0)
    assert played.queue.surplus() == "r8", "of the last class"


def test_nothing_is_kept_of_tenants_that_owe_nothing() -> None:
    rounds = TenantRounds(QUANTUM)
    for number in range(1000):
        tenant = str(number).encode()
        rounds.join(tenant)
        rounds.serve(tenant, 2 * QUANTUM)
        rounds.leave(tenant)
    assert len(rounds) == 1000, "they owe the next round"
    rounds.join(b"a")
    for _ in range(4):
        rounds.serve(b"a", QUANTUM)
    rounds.leave(b"a")
    assert len(rounds) == 1
