"""What a store says of its reads from other stores decides whether they are worth a fetch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from router_kit import TierTimes, holding, info, request, router, routes

from antiphon.core.router import Parts, Router, StoredTokens
from antiphon.core.router.fetch_pace import FetchPace
from antiphon.types import STORE, Request, Tier, WorkerId, WorkerInfo

A = info("a")
BOX2 = WorkerId("box2.store")
PEER_960 = (StoredTokens(Tier.PEER, 960),)
SLOW_TOKEN_S, QUICK_TOKEN_S = 5e-3, 1e-4
"""Computing a token takes 1 ms, and so does reading one from a peer where nothing was said."""


def beside_960(worker: WorkerInfo = A) -> Router:
    return router(worker, parts=Parts(prefixes=holding({}, PEER_960)))


def asked(id: str = "r") -> Request:
    return replace(request(id), prompt=tuple(range(1, 1001)))


class QuickPeers:
    """0.2 ms a token from a peer."""

    def seconds(self, size_bytes: int, tier: Tier) -> float:
        return 2e-4 * size_bytes if tier is Tier.PEER else TierTimes().seconds(size_bytes, tier)


def fetch_of(made: Router, id: str, now: float = 0.0) -> int:
    (found,) = routes(made, [asked(id)], now)
    made.settled(asked(id).id, now)
    return found.fetch


def test_small_levels_make_a_fetch_worth_it_and_slow_links_make_it_none() -> None:
    made = beside_960()
    assert fetch_of(made, "nothing was said") == 0
    made.heard_peer_time(STORE, QUICK_TOKEN_S, 0.0)
    assert fetch_of(made, "few bytes") == 960
    made.heard_peer_time(STORE, SLOW_TOKEN_S, 0.0)
    assert fetch_of(made, "slow link") == 0
    made.heard_peer_time(STORE, QUICK_TOKEN_S, 0.0)
    made.kv_holder_left(STORE, 0.0)
    assert fetch_of(made, "that store is gone") == 0


def test_it_is_predicted_as_the_store_says_and_the_way_from_its_memory() -> None:
    made = beside_960()
    made.heard_peer_time(STORE, QUICK_TOKEN_S, 0.0)
    (found,) = routes(made, [asked()])
    from_memory_s = TierTimes().seconds(960, Tier.HOST)
    assert found.predicted_ttft_s == pytest.approx(960 * QUICK_TOKEN_S + from_memory_s + 40e-3)


def test_what_a_store_says_is_of_its_own_host() -> None:
    far = beside_960(info("box2.a"))
    far.heard_peer_time(STORE, QUICK_TOKEN_S, 0.0)
    assert fetch_of(far, "the gateway's host") == 0
    far.heard_peer_time(BOX2, QUICK_TOKEN_S, 0.0)
    assert fetch_of(far, "its own") == 960


def test_what_fetches_have_shown_before_is_void() -> None:
    """Else a link would count as slow twice: once as it was seen, once as it is said."""
    pace = FetchPace(TierTimes())
    for _ in range(8):
        pace.observed(Tier.PEER, 1.0, 6.0, whole=True, now=0.0)
        pace.observed(Tier.DISK, 1.0, 6.0, whole=True, now=0.0)
    on_disk_s = pace.seconds(100, Tier.DISK)
    pace.told(STORE, 0.01, 0.0)
    assert pace.seconds(100, Tier.PEER) == 100 * 0.01 + TierTimes().seconds(100, Tier.HOST)
    pace.observed(Tier.PEER, 1.0, 4.0, whole=True, now=0.0)
    assert pace.seconds(100, Tier.PEER) == 2 * (1.0 + TierTimes().seconds(100, Tier.HOST))
    seen_s = pace.seconds(100, Tier.PEER)
    pace.told(STORE, 0.01, 0.0)
    pace.told(BOX2, None, 0.0)
    assert pace.seconds(100, Tier.PEER) == seen_s, "nothing new was said"
    assert pace.seconds(100, Tier.DISK) == on_disk_s


def test_what_is_seen_after_that_fades_from_then_on() -> None:
    pace = FetchPace(TierTimes())
    pace.observed(Tier.PEER, 1.0, 4.0, whole=True, now=0.0)
    pace.told(STORE, 0.0, 1.0)
    pace.observed(Tier.PEER, 1.0, 4.0, whole=True, now=1000.0)
    pace.fade(1000.0)
    assert pace.seconds(100, Tier.PEER) == 2 * TierTimes().seconds(100, Tier.HOST)


def test_one_slow_moment_does_not_end_all_fetches() -> None:
    """A link stalls, and the store says so for as long as nothing else is fetched."""
    made = router(A, parts=Parts(prefixes=holding({}, PEER_960)), fetch=QuickPeers())
    assert fetch_of(made, "nothing was said") == 960
    made.heard_peer_time(STORE, 10.0, 0.0)
    assert fetch_of(made, "the link stalls") == 0
    assert fetch_of(made, "soon after it", 30.0) == 0
    assert fetch_of(made, "by and by", 600.0) == 960
    made.heard_peer_time(STORE, 20.0, 600.0)
    assert fetch_of(made, "it was tried, and stalls", 601.0) == 0


@pytest.mark.parametrize("token_s", [QUICK_TOKEN_S, SLOW_TOKEN_S])
def test_what_is_slow_fades_towards_the_model_and_what_is_quick_stays(token_s: float) -> None:
    """What is quick is fetched, and so measured."""
    pace = FetchPace(TierTimes())
    pace.told(STORE, token_s, 0.0)
    model_s = TierTimes().seconds(100, Tier.PEER)
    told_s = 100 * token_s + TierTimes().seconds(100, Tier.HOST)
    assert pace.seconds(100, Tier.PEER) == told_s
    pace.fade(60.0)
    half = pace.seconds(100, Tier.PEER)
    pace.fade(1e6)
    if told_s > model_s:
        assert half == pytest.approx((told_s * model_s) ** 0.5)
        assert pace.seconds(100, Tier.PEER) == pytest.approx(model_s)
    else:
        assert half == pace.seconds(100, Tier.PEER) == told_s


@pytest.mark.parametrize(("one", "other"), [(STORE, BOX2), (BOX2, STORE)])
@pytest.mark.parametrize("tier", [Tier.PEER, Tier.HOST])
def test_what_one_store_says_and_shows_changes_nothing_for_another(
    one: WorkerId, other: WorkerId, tier: Tier
) -> None:
    pace = FetchPace(TierTimes())
    pace.told(other, 0.01, 0.0)
    pace.observed(tier, 1.0, 4.0, whole=True, now=0.0, store=other)
    before_s = pace.seconds(100, tier, other)
    fresh_s = pace.seconds(100, tier, one)
    assert fresh_s == TierTimes().seconds(100, tier), "what the other has shown"
    for byte_s in (0.02, 0.03, None):
        pace.told(one, byte_s, 0.0)
        pace.observed(tier, 1.0, 4.0, whole=True, now=0.0, store=one)
        assert pace.seconds(100, tier, one) > fresh_s
        assert pace.seconds(100, tier, other) == before_s


def test_a_store_that_hangs_is_that_of_its_host_alone() -> None:
    parts = Parts(prefixes=holding({}, (StoredTokens(Tier.HOST, 960),)))
    made = router(A, info("box2.a"), parts=parts)
    [first] = routes(made, [asked("hangs")])
    assert first.fetch == 960
    made.fetched(asked("hangs").id, 960, 60.0, 1.0)
    made.settled(asked("hangs").id, 1.0)
    [then] = routes(made, [asked("next")], 1.0)
    assert then.fetch == 960
    assert then.decode != first.decode


@given(
    said=st.dictionaries(st.sampled_from((STORE, BOX2)), st.none() | st.floats(0.0, 1e3)),
    store=st.sampled_from((STORE, BOX2)),
    tier=st.sampled_from(Tier),
    size=st.integers(0, 10**12),
)
def test_only_its_own_store_s_reads_from_peers_are_told(
    said: dict[WorkerId, float | None], store: WorkerId, tier: Tier, size: int
) -> None:
    pace = FetchPace(TierTimes())
    for one, byte_s in said.items():
        pace.told(one, byte_s, 0.0)
    seconds = pace.seconds(size, tier, store)
    if tier is not Tier.PEER or said.get(store) is None:
        assert seconds == TierTimes().seconds(size, tier)
    assert seconds >= 0.0
    assert pace.seconds(0, tier, store) == 0.0
