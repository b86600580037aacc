"""Where a prompt's beginning is decides where it goes, and whether it is fetched."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_holder import Holder
from router_kit import (
    TierTimes,
    health,
    holding,
    info,
    offer_of,
    report,
    request,
    router,
    routes,
)

from antiphon.core.kv import BlockKeys
from antiphon.core.router import Parts, Router, RouterLimits, StoredTokens
from antiphon.core.router.fetch_pace import FetchPace
from antiphon.types import (
    STORE,
    BlockKey,
    Health,
    KvReplay,
    Request,
    Role,
    Route,
    Tier,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
)

A, B = info("a"), info("b")
PROMPT = tuple(range(1, 1001))
WHOLE_BLOCKS = 15 * 64
HOST_960 = (StoredTokens(Tier.HOST, 960),)


def asked(id: str, prompt: Sequence[int] = PROMPT, salt: bytes = b"") -> Request:
    return replace(request(id), prompt=tuple(prompt), tenant_salt=salt)


def keys_of(tokens: Sequence[int], worker: WorkerInfo = A, salt: bytes = b"") -> list[BlockKey]:
    keys: list[BlockKey] = []
    made = BlockKeys(identity=worker.model.identity, numerics=worker.model.numerics, salt=salt)
    made.extend(keys, tokens, len(tokens) // 64)
    return keys


def tells(made: Router, holder: Holder, now: float = 0.0) -> KvReplay | None:
    wish = None
    for message in holder.dump():
        wish = made.heard_kv(holder.name, holder.incarnation, message, now)
    return wish


def holder(name: str, keys: Sequence[BlockKey], tier: Tier = Tier.DEVICE) -> Holder:
    return Holder(WorkerId(name), blocks={(key, tier) for key in keys})


def route(made: Router, one: Request, now: float = 0.0) -> Route:
    (found,) = routes(made, [one], now)
    return found


# ── what is there ────────────────────────────────────────────────────────────────────────────


def test_a_prompt_goes_where_its_beginning_is_and_only_its_rest_counts() -> None:
    made = router(A, B)
    tells(made, holder("a", []))
    tells(made, holder("b", keys_of(PROMPT)))
    found = route(made, asked("r"))
    assert found.decode == B.id
    assert found.predicted_ttft_s == pytest.approx((1000 - WHOLE_BLOCKS) * 1e-3)
    assert found.fetch == 0
    assert "96% of it cached" in found.reason
    assert made.workers[1].load.queued_tokens == 1000 - WHOLE_BLOCKS


def test_the_last_token_is_always_computed() -> None:
    made = router(A)
    tells(made, holder("a", keys_of(PROMPT[:640])))
    found = route(made, asked("r", PROMPT[:640]))
    assert found.predicted_ttft_s == pytest.approx(64e-3)


def test_another_tenant_s_another_model_s_and_another_numerics_blocks_are_nobody_s() -> None:
    """LMCache 4825, sglang 37160: a salt that was dropped let one tenant time another's cache."""
    odd = info("odd", numerics="avx2")
    made = router(A, odd)
    tells(made, holder("a", keys_of(PROMPT, salt=b"one")))
    tells(made, holder("odd", keys_of(PROMPT, A, salt=b"two")))
    tells(made, holder("store", keys_of(PROMPT, odd, salt=b"one"), Tier.HOST))
    for salt in (b"", b"two"):
        assert route(made, asked(f"r{salt}", salt=salt)).predicted_ttft_s == pytest.approx(1.0)
        made.settled(asked(f"r{salt}").id, 0.0)
    assert route(made, asked("r", salt=b"one")).decode == A.id
    chosen = [route(made, asked(f"s{number}", salt=b"one")) for number in range(2)]
    assert {(one.decode, one.fetch) for one in chosen} == {(A.id, 0), (odd.id, WHOLE_BLOCKS)} or {
        (one.decode, one.fetch) for one in chosen
    } == {(A.id, 0)}


def test_blocks_that_left_count_no_more() -> None:
    made = router(A, B)
    tells(made, holder("a", []))
    there = holder("b", keys_of(PROMPT))
    tells(made, there)
    there.change(keys_of(PROMPT)[0], Tier.DEVICE, False)
    (news,) = there.news()
    assert made.heard_kv(B.id, B.incarnation, news, 0.1) is None
    assert route(made, asked("r"), 0.2).predicted_ttft_s == pytest.approx(1.0)


def test_a_lost_worker_and_a_store_that_left_hold_nothing() -> None:
    """LMCache 2143, Mooncake 2039: what a dead process had stayed in the index."""
    made = router(A, B)
    tells(made, holder("a", []))
    tells(made, holder("b", keys_of(PROMPT)))
    tells(made, holder("store", keys_of(PROMPT), Tier.HOST))
    health(made, "b", Health.LOST)
    made.kv_holder_left(STORE, 0.1)
    assert made.kv_index.counts.held == 0
    made.observe(WorkerJoined(info("b", life="2")), 0.2)
    found = route(made, asked("r"), 0.3)
    assert (found.predicted_ttft_s, found.fetch) == (pytest.approx(1.0), 0)


def test_what_an_earlier_life_says_is_not_heard() -> None:
    made = router(info("a", life="2"))
    tells(made, holder("a", keys_of(PROMPT)))
    assert made.kv_index.held_by(A.id) == frozenset()
    assert made.heard_kv(WorkerId("nobody"), A.incarnation, holder("a", []).dump()[0], 0.0) is None
    assert made.kv_index.counts.holders == 1


def test_dynamo_7072_nothing_asks_for_the_same_gap_in_a_loop() -> None:
    made, there = router(A), holder("a", [])
    tells(made, there)
    for number in range(5):
        there.change(bytes([number]) * 32, Tier.DEVICE, True)
        if number == 0:
            there.news()  # is lost
    wishes = [made.heard_kv(A.id, A.incarnation, news, 0.1) for news in there.news()]
    wishes += [made.heard_kv(A.id, A.incarnation, there.so_far(), 0.1 * n) for n in range(1, 11)]
    assert wishes == [KvReplay(0)] + [None] * 10
    assert made.heard_kv(A.id, A.incarnation, there.so_far(), 1.2) == KvReplay(0)
    for message in there.again(KvReplay(0)):
        made.heard_kv(A.id, A.incarnation, message, 1.3)
    assert len(made.kv_index.held_by(A.id)) == 5


def test_without_anybody_who_tells_nothing_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockKeys, "_named", lambda *_: pytest.fail("a key was computed"))
    made = router(A, B)
    routes(made, [asked(f"r{number}") for number in range(4)])


def test_a_new_prompt_costs_one_key_to_look_for(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[object] = []
    key = vars(BlockKeys)["_named"]

    def counted(self: BlockKeys, *args: object) -> BlockKey:
        computed.append(args)
        return key(self, *args)

    made = router(A, B, limits=RouterLimits(prefix_cache=False))
    tells(made, holder("a", keys_of(range(64))))
    monkeypatch.setattr(BlockKeys, "_named", counted)
    route(made, asked("r", range(5, 8000)))
    assert len(computed) <= 1


# ── what is coming ───────────────────────────────────────────────────────────────────────────


def told(made: Router) -> Router:
    """Workers that tell that they have nothing."""
    for worker in made.workers:
        made.heard_kv(worker.info.id, worker.info.incarnation, holder("", []).dump()[0], 0.0)
    return made


def test_a_request_follows_the_one_that_computes_its_beginning() -> None:
    """vLLM's routers send a burst with one system prompt to all workers: each computes it."""
    made = told(router(A, B, ttft_s=10.0))
    first = route(made, asked("r", [*PROMPT, 1]))
    second = route(made, asked("s", [*PROMPT, 2]))
    assert second.decode == first.decode
    assert second.predicted_ttft_s == pytest.approx(1.001 + 0.041)


def test_it_does_not_if_it_would_wait_longer_than_it_takes_itself() -> None:
    made = told(router(A, B))
    first = route(made, asked("r", [*PROMPT, *range(3000)]))
    second = route(made, asked("s", [*PROMPT, 2]))
    assert second.decode != first.decode


@pytest.mark.parametrize("how", ["settled", "again", "lost", "moved"])
def test_what_will_not_come_is_expected_no_more(how: str) -> None:
    made = told(router(A, B, ttft_s=10.0))
    one = asked("r", [*PROMPT, 1])
    first = route(made, one)
    match how:
        case "settled":
            made.settled(one.id, 0.1)
        case "again":
            made.settled(one.id, 0.1, again=True)
        case "lost":
            health(made, first.decode, Health.LOST)
        case _:
            made.refused(first.decode, 0.1)
            route(made, one, 0.1)
            made.settled(one.id, 0.1)
    found = route(made, asked("s", [*PROMPT, 2]), 0.15)
    assert "cached" not in found.reason


def test_workers_without_a_prefix_cache_are_not_followed() -> None:
    made = told(router(A, B, limits=RouterLimits(prefix_cache=False), ttft_s=10.0))
    chosen = routes(made, [asked("r", [*PROMPT, 1]), asked("s", [*PROMPT, 2])])
    assert chosen[0].decode != chosen[1].decode


# ── what is in the store ─────────────────────────────────────────────────────────────────────


def test_what_the_store_has_is_fetched_if_that_is_sooner() -> None:
    made = router(A)
    tells(made, holder("store", keys_of(PROMPT), Tier.HOST))
    found = route(made, asked("r"))
    assert found.fetch == WHOLE_BLOCKS
    assert found.predicted_ttft_s == pytest.approx(1e-3 + WHOLE_BLOCKS * 1e-4 + 0.040)
    assert "960 tokens from the store" in found.reason
    assert made.workers[0].load.queued_tokens == 40


def test_lmcache_1938_a_fetch_that_is_slower_than_computing_is_not_made() -> None:
    """LMCache 1938, 1109, 1741: "slower than without": fetch only what pays."""
    made = router(A)
    tells(made, holder("store", keys_of(PROMPT), Tier.DISK))
    assert route(made, asked("r")).fetch == 0


def test_a_prefix_is_fetched_as_far_as_that_is_sooner() -> None:
    runs = (StoredTokens(Tier.HOST, 640), StoredTokens(Tier.DISK, 320))
    made = router(A, parts=Parts(prefixes=holding({}, runs)))
    assert route(made, asked("r")).fetch == 640


def test_what_lies_beside_a_worker_is_fetched_there_and_nowhere_else() -> None:
    made = router(A, B)
    tells(made, holder("a", []))
    tells(made, holder("b", keys_of(PROMPT), Tier.HOST))
    found = route(made, asked("r"))
    assert (found.decode, found.fetch) == (B.id, WHOLE_BLOCKS)
    tells(made, holder("store", keys_of(PROMPT), Tier.HOST))
    chosen = {found.decode: found.fetch for found in routes(made, [asked("s"), asked("t")])}
    assert chosen.get(A.id) == WHOLE_BLOCKS


def test_a_worker_of_another_host_fetches_from_the_store_there() -> None:
    far = info("box2.a")
    made = router(far)
    tells(made, holder("store", keys_of(PROMPT), Tier.HOST))
    assert route(made, asked("r")).fetch == 0, "that is the gateway's host's"
    tells(made, holder("box2.store", keys_of(PROMPT), Tier.HOST))
    assert route(made, asked("s")).fetch == WHOLE_BLOCKS
    made.kv_holder_left(WorkerId("box2.store"), 1.0)
    assert route(made, asked("t")).fetch == 0


def test_of_many_workers_the_one_that_has_it_beside_it_is_looked_at() -> None:
    infos = [info(f"w{number:02}") for number in range(40)]
    made = router(*infos, limits=RouterLimits(most_predicted=2))
    tells(made, holder("w17", keys_of(PROMPT), Tier.HOST))
    found = route(made, asked("r"))
    assert (found.decode, found.fetch) == (WorkerId("w17"), WHOLE_BLOCKS)


def test_what_is_nearer_is_not_fetched() -> None:
    made = router(A, parts=Parts(prefixes=holding({"a": 960}, HOST_960)))
    assert route(made, asked("r")).fetch == 0
    made = router(A, parts=Parts(prefixes=holding({"a": 896}, HOST_960)))
    assert route(made, asked("r")).fetch == 960
    made = router(A, parts=Parts(prefixes=holding({"a": 959}, HOST_960)))
    assert route(made, asked("r")).fetch == 0


def test_a_busy_worker_s_own_cache_loses_to_a_fetch_elsewhere() -> None:
    made = router(A, B, parts=Parts(prefixes=holding({"a": 960}, HOST_960)))
    assert route(made, asked("r")).decode == A.id
    report(made, "a", waiting=1, waiting_tokens=3000)
    found = route(made, asked("s"))
    assert (found.decode, found.fetch) == (B.id, 960)


def test_whoever_computes_the_prompt_fetches() -> None:
    split = [info("p", Role.PREFILL), info("d", Role.DECODE)]
    made = router(*split, parts=Parts(prefixes=holding({}, HOST_960)))
    report(made, "d", running=20, running_sequences=20, context_tokens=10_000)
    found = route(made, asked("r"))
    assert (found.prefill, found.fetch) == (WorkerId("p"), 960)


def test_no_fetch_time_no_fetch() -> None:
    made = router(A, fetch=None, parts=Parts(prefixes=holding({}, HOST_960)))
    assert route(made, asked("r")).fetch == 0


def test_what_a_fetch_did_not_bring_is_load() -> None:
    made = router(A, parts=Parts(prefixes=holding({}, HOST_960)))
    route(made, asked("r"))
    made.fetched(asked("r").id, 320, 0.05, 0.1)
    assert made.workers[0].load.queued_tokens == 40 + 320
    made.fetched(asked("r").id, 320, 0.05, 0.1)
    assert made.workers[0].load.queued_tokens == 40 + 320


def test_fetches_that_fail_slowly_end_and_are_tried_again_later() -> None:
    """LMCache 1810, Mooncake 1088: a store that hangs must not slow down every request."""
    made = router(A, ttft_s=60.0, parts=Parts(prefixes=holding({}, HOST_960)))
    now, fetched = 0.0, 0
    for number in range(20):
        one = asked(f"r{number}")
        if route(made, one, now).fetch:
            fetched += 1
            made.fetched(one.id, 960, 2.0, now + 2.0)
        now += 3.0
        made.settled(one.id, now)
    assert 1 <= fetched <= 4
    assert route(made, asked("later"), now + 600.0).fetch == 960


def test_a_store_that_is_slower_than_predicted_is_predicted_so() -> None:
    pace = FetchPace(TierTimes())
    before = pace.seconds(1000, Tier.HOST)
    for number in range(20):
        predicted = pace.seconds(1000, Tier.HOST)
        pace.observed(Tier.HOST, predicted, 3 * before, whole=True, now=number * 0.1)
    assert pace.seconds(1000, Tier.HOST) == pytest.approx(3 * before, rel=0.05)
    assert pace.seconds(1000, Tier.DISK) == TierTimes().seconds(1000, Tier.DISK)
    pace.fade(10_000.0)
    assert pace.seconds(1000, Tier.HOST) == pytest.approx(before, rel=0.05)


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 15),
    st.lists(
        st.tuples(st.sampled_from([Tier.HOST, Tier.DISK, Tier.REMOTE]), st.integers(1, 8)),
        max_size=4,
    ),
)
def test_no_route_is_slower_than_computing_all_and_none_fetches_what_is_not_there(
    own: int, runs: list[tuple[Tier, int]]
) -> None:
    store = tuple(StoredTokens(tier, 64 * blocks) for tier, blocks in runs)
    there = sum(run.tokens for run in store)
    parts = Parts(prefixes=holding({"a": 64 * own}, store))
    one = asked("r", [*PROMPT, *PROMPT, *PROMPT])
    found = route(router(A, parts=parts), one)
    without = route(router(A, parts=Parts(prefixes=holding({"a": 64 * own}))), one)
    assert found.predicted_ttft_s is not None
    assert without.predicted_ttft_s is not None
    if found.fetch:
        assert 64 * own < found.fetch <= there
        assert found.predicted_ttft_s < without.predicted_ttft_s
    else:
        assert found.predicted_ttft_s == without.predicted_ttft_s


def test_nothing_is_kept_of_requests_that_are_over() -> None:
    made = told(router(A, info("p", Role.PREFILL), info("d", Role.DECODE)))
    tells(made, holder("store", keys_of(PROMPT), Tier.HOST))
    for number in range(6):
        one = asked(f"r{number}")
        found = route(made, one)
        made.prefilled(one.id, 0.1)
        if found.prefill:
            made.choose_decode(offer_of(info("p", Role.PREFILL), one), one, 0.2)
        made.settled(one.id, 0.3)
    assert made.open_requests == 0
