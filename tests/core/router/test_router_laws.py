"""The router's laws, over any history; and that a faulty part is found by the law it breaks."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from router_kit import PAGES, info, offer_of, report, request, router, routes, view

from antiphon.core.kv import BlockKeys
from antiphon.core.router import Option, Parts, Router, WorkerBelief
from antiphon.core.router.placement import Placement
from antiphon.types import (
    STORE,
    BlockKey,
    Health,
    HealthChanged,
    Hold,
    Incarnation,
    KvDump,
    Request,
    Role,
    RoleChanged,
    Route,
    Tier,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
    WorkerReported,
)

POLICIES = ["slo", "random", "round-robin", "least-loaded", "prefix-gated", "overlap-cost"]
NAMES = [WorkerId(f"w{number}") for number in range(4)]
ROLES = [Role.PREFILL, Role.DECODE, Role.MIXED]

views = st.builds(
    lambda held, offered, **counts: view(
        held_pages=held, offered_pages=min(held, offered), **counts
    ),
    st.integers(0, PAGES),
    st.integers(0, PAGES),
    running=st.integers(0, 5),
    waiting=st.integers(0, 3),
    pulling=st.integers(0, 2),
    peak_pages=st.integers(0, PAGES),
    waiting_tokens=st.integers(0, 5000),
    running_sequences=st.integers(0, 9),
    context_tokens=st.integers(0, 9000),
    steps_total=st.integers(0, 100),
    computed_tokens_total=st.integers(0, 10_000),
    busy_s_total=st.floats(0, 100),
)


class Routing(RuleBasedStateMachine):
    """Anything may happen in any order; the model knows who is well and what is open."""

    parts = Parts()

    @initialize(policy=st.sampled_from(POLICIES))
    def begin(self, policy: str) -> None:
        self.made = router(policy=policy, parts=self.parts)
        self.now, self.number = 0.0, 0
        self.fleet: dict[WorkerId, WorkerInfo] = {}
        self.health: dict[WorkerId, Health] = {}
        self.open: dict[str, Request] = {}
        self.owners: dict[str, WorkerInfo] = {}
        for worker, role in zip(NAMES, ROLES, strict=False):
            self.join(worker, role, False)

    @rule(worker=st.sampled_from(NAMES), role=st.sampled_from(ROLES), odd=st.booleans())
    def join(self, worker: WorkerId, role: Role, odd: bool) -> None:
        self.number += 1
        one = info(worker, role, numerics="y" if odd else "x", life=str(self.number))
        self.made.observe(WorkerJoined(one), self.now)
        self.fleet[worker], self.health[worker] = one, Health.JOINED

    @rule(worker=st.sampled_from(NAMES), what=st.sampled_from(list(Health)))
    def change_health(self, worker: WorkerId, what: Health) -> None:
        self.made.observe(HealthChanged(worker, what), self.now)
        if what is Health.LOST:
            self.fleet.pop(worker, None)
            self.health.pop(worker, None)
        elif worker in self.fleet:
            self.health[worker] = what

    @rule(worker=st.sampled_from(NAMES), role=st.sampled_from(ROLES))
    def change_role(self, worker: WorkerId, role: Role) -> None:
        self.made.observe(RoleChanged(worker, role), self.now)

    @rule(holder=st.sampled_from([*NAMES, STORE]), odd=st.booleans(), blocks=st.integers(0, 40))
    def tell(self, holder: WorkerId, odd: bool, blocks: int) -> None:
        """Blocks of the prompts of all requests here; the truth or not."""
        keys: list[BlockKey] = []
        made = BlockKeys(identity=bytes(32), numerics="y" if odd else "x")
        made.extend(keys, (7,) * 64 * blocks, blocks)
        tier = Tier.HOST if holder == STORE else Tier.DEVICE
        held = tuple((key, tier) for key in keys)
        one = self.fleet.get(holder)
        life = Incarnation(f"{holder}-{blocks}") if one is None else one.incarnation
        self.made.heard_kv(
            holder, life, KvDump(next=0, begins=True, ends=True, blocks=held), self.now
        )

    @rule()
    def lose_the_store(self) -> None:
        self.made.kv_holder_left(STORE, self.now)

    @rule(worker=st.sampled_from(NAMES), what=views)
    def hear(self, worker: WorkerId, what: object) -> None:
        assert isinstance(what, type(view()))
        self.made.observe(WorkerReported(worker, what), self.now)

    @rule(seconds=st.sampled_from([0.01, 1.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(worker=st.sampled_from(NAMES))
    def refuse(self, worker: WorkerId) -> None:
        self.made.refused(worker, self.now)

    @rule(tokens=st.integers(1, 8191), n=st.integers(1, 3))
    def choose(self, tokens: int, n: int) -> None:
        self.number += 1
        self._route(request(f"r{self.number}", tokens, n=n))

    @rule(data=st.data())
    def choose_again(self, data: st.DataObject) -> None:
        if self.open:
            old = self.open[data.draw(st.sampled_from(sorted(self.open)))]
            if data.draw(st.booleans()):
                self.made.settled(old.id, self.now, again=True)
            n = old.sampling.n
            self._route(
                request(old.id, len(old.prompt), n=n, attempt=2, resumed=((1,),) * n, done=(n,))
            )

    def _route(self, one: Request) -> None:
        answer = self.made.choose(one, self.now)
        if not self.fleet:
            assert isinstance(answer, Hold)
        if isinstance(answer, Route):
            self.open[one.id] = one
            self._is_well(answer.decode)
            if answer.prefill is not None:
                self._is_well(answer.prefill)
                owner, taker = self.fleet[answer.prefill], self.fleet[answer.decode]
                assert owner.model.numerics == taker.model.numerics
                self.owners[one.id] = owner

    def _is_well(self, worker: WorkerId) -> None:
        assert self.health[worker] is Health.JOINED

    @rule(data=st.data())
    def prefill(self, data: st.DataObject) -> None:
        if self.open:
            self.made.prefilled(
                self.open[data.draw(st.sampled_from(sorted(self.open)))].id, self.now
            )

    @rule(data=st.data())
    def choose_decode(self, data: st.DataObject) -> None:
        if both := sorted(self.open.keys() & self.owners.keys()):
            name = data.draw(st.sampled_from(both))
            owner = self.owners[name]
            answer = self.made.choose_decode(
                offer_of(owner, self.open[name]), self.open[name], self.now
            )
            if isinstance(answer, str):
                self._is_well(WorkerId(answer))
                assert self.fleet[WorkerId(answer)].model.numerics == owner.model.numerics

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        if self.open:
            name = data.draw(st.sampled_from(sorted(self.open)))
            self.made.settled(self.open.pop(name).id, self.now)
            self.owners.pop(name, None)

    @invariant()
    def nothing_is_kept_of_what_is_over(self) -> None:
        assert self.made.open_requests == len(self.open)
        assert [worker.info for worker in self.made.workers] == [
            self.fleet[name] for name in sorted(self.fleet)
        ]

    @invariant()
    def no_load_is_negative(self) -> None:
        for worker in self.made.workers:
            assert all(part >= 0 for part in worker.load)

    def teardown(self) -> None:
        for one in self.open.values():
            self.made.settled(one.id, self.now)
        assert self.made.open_requests == 0
        for worker in self.made.workers:
            self.made.observe(WorkerReported(worker.info.id, view()), self.now)
            assert worker.placements() == []
            assert set(worker.load) == {0}


TestRouting = Routing.TestCase
TestRouting.settings = settings(deadline=None, max_examples=80, stateful_step_count=40)


@settings(deadline=None, max_examples=60)
@given(
    st.permutations(range(6)), st.sampled_from(POLICIES), st.lists(views, min_size=6, max_size=6)
)
def test_the_order_of_joining_decides_nothing(
    order: Sequence[int], policy: str, seen: Sequence[object]
) -> None:
    fleet = [info(f"w{number}", ROLES[number % 3]) for number in range(6)]

    def decide(order: Sequence[int]) -> list[object]:
        made = router(policy=policy)
        for number in order:
            made.observe(WorkerJoined(fleet[number]), 0.0)
        for number in order:
            made.observe(WorkerReported(fleet[number].id, seen[number]), 0.0)  # pyright: ignore
        return [made.choose(request(f"r{number}", 97 * number + 9), 0.0) for number in range(20)]

    assert decide(order) == decide(range(6))


# ── bursts and paces ─────────────────────────────────────────────────────────────────────────


def burst_spread(made: Router, count: int, tokens: int) -> int:
    """The most minus the fewest requests of a burst that a worker gets, over all workers."""
    counts = Counter({worker.info.id: 0 for worker in made.workers})
    for route in routes(made, [request(f"r{number}", tokens) for number in range(count)]):
        counts[route.decode] += 1
    return max(counts.values()) - min(counts.values())


bursts = st.tuples(st.integers(1, 8), st.integers(1, 40), st.integers(1, 300))


@settings(deadline=None, max_examples=60)
@given(bursts, st.sampled_from(["slo", "round-robin", "least-loaded"]))
def test_a_burst_is_spread_evenly(burst: tuple[int, int, int], policy: str) -> None:
    workers, count, tokens = burst
    made = router(*(info(f"w{number}") for number in range(workers)), policy=policy)
    assert burst_spread(made, count, tokens) <= 1


@settings(deadline=None, max_examples=60)
@given(bursts)
def test_a_split_burst_is_spread_evenly_over_both_pools(burst: tuple[int, int, int]) -> None:
    workers, count, tokens = burst[0], burst[1], burst[2] + 200  # too long for decode workers
    fleet = [info(f"p{number}", Role.PREFILL, pages=10**6) for number in range(workers)]
    fleet += [info(f"d{number}", Role.DECODE, pages=10**6) for number in range(workers)]
    made = router(*fleet, ttft_s=3600.0)
    chosen = routes(made, [request(f"r{number}", tokens) for number in range(count)])
    for pool in ([route.prefill for route in chosen], [route.decode for route in chosen]):
        counts = [Counter(pool)[name] for name in sorted(set(pool), key=str)]
        counts += [0] * (workers - len(counts))
        assert max(counts) - min(counts) <= 1


def paced_counts(made: Router, count: int) -> list[int]:
    """Requests that come one by one, each over before the next; reports of no load in between."""
    counts = Counter({worker.info.id: 0 for worker in made.workers})
    for number in range(count):
        now = float(number)
        (route,) = routes(made, [request(f"r{number}")], now)
        counts[route.decode] += 1
        made.prefilled(route.request, now + 0.1)
        made.settled(route.request, now + 0.2)
        for worker in made.workers:
            made.observe(WorkerReported(worker.info.id, view()), now + 0.5)
    return sorted(counts.values())


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 30), st.sampled_from(["slo", "least-loaded"]))
def test_paced_requests_are_spread_though_every_report_says_no_load(
    workers: int, count: int, policy: str
) -> None:
    counts = paced_counts(
        router(*(info(f"w{number}") for number in range(workers)), policy=policy), count
    )
    assert counts[-1] - counts[0] <= 1


# ── room ─────────────────────────────────────────────────────────────────────────────────────


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 8000), max_size=40), st.integers(0, PAGES // 2))
def test_what_a_prefill_pool_owes_stays_within_half_of_it(prompts: list[int], offered: int) -> None:
    made = router(info("p", Role.PREFILL), info("d", Role.DECODE))
    report(made, "p", held_pages=offered, offered_pages=offered)
    for number, tokens in enumerate(prompts):
        made.choose(request(f"r{number}", tokens), 0.0)
        (owed,) = [worker.load.handover_pages for worker in made.workers if worker.info.id == "p"]
        assert 2 * owed <= PAGES


@settings(deadline=None, max_examples=60)
@given(st.sets(st.integers(0, 5), max_size=5), st.sampled_from(POLICIES), st.integers(0, 99))
def test_nobody_waits_for_a_full_worker_while_another_has_room(
    full: set[int], policy: str, seed: int
) -> None:
    made = router(*(info(f"w{number}") for number in range(6)), policy=policy, seed=seed)
    for number in sorted(full):
        report(made, f"w{number}", running=1, waiting=2, held_pages=PAGES, peak_pages=PAGES)
    roomy = {f"w{number}" for number in range(6) if number not in full}
    for route in routes(made, [request(f"r{number}") for number in range(12)]):
        assert route.decode in roomy


# ── negative controls ────────────────────────────────────────────────────────────────────────


class Forgetful(WorkerBelief):
    """Trusts reports alone: what was just decided is no load."""

    def put(self, placement: Placement) -> None:
        """Forgets it."""


class Hoarder(WorkerBelief):
    """Never lets go of a request."""

    def drop(self, placement: Placement) -> None:
        """Keeps it."""


class First:
    """Takes the first of the best ones."""

    by_prediction = True

    def best(self, options: Sequence[Option]) -> Option:
        return max(options, key=lambda option: option.headroom)


class Blind(WorkerBelief):
    """Hears of no trouble."""

    @property
    def health(self) -> Health:
        return Health.JOINED

    @health.setter
    def health(self, what: Health) -> None:
        pass


def test_control_a_burst_law_finds_a_router_that_trusts_reports_alone() -> None:
    four = [info(f"w{number}") for number in range(4)]
    least = router(*four, policy="least-loaded", parts=Parts(belief=Forgetful))
    for number in range(4):
        report(least, f"w{number}", running=number, running_sequences=number)
    assert burst_spread(least, 12, 100) > 1


def test_control_a_pace_law_finds_a_router_that_takes_the_first_of_equals() -> None:
    four = [info(f"w{number}") for number in range(4)]
    counts = paced_counts(router(*four, parts=Parts(scorer=lambda policy, seed: First())), 12)
    assert counts == [0, 0, 0, 12]


@pytest.mark.parametrize("belief", [Hoarder, Blind])
def test_control_the_state_machine_finds_what_is_kept_and_who_is_not_well(
    belief: type[WorkerBelief],
) -> None:
    class Faulty(Routing):
        parts = Parts(belief=belief)

    found = settings(
        deadline=None,
        max_examples=100,
        stateful_step_count=30,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
    )
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(Faulty, settings=found)
