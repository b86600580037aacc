"""What a router decides, case by case."""

from dataclasses import replace

import pytest
from router_kit import PAGES, health, holding, info, offer_of, report, request, router, routes

from antiphon.core.router import Parts, RouterLimits
from antiphon.types import (
    Health,
    Hold,
    Rejected,
    RejectReason,
    Role,
    RoleChanged,
    Route,
    Slo,
    WorkerId,
    WorkerJoined,
)

P, P2 = info("prefill-0", Role.PREFILL), info("prefill-1", Role.PREFILL)
D, D2 = info("decode-0", Role.DECODE), info("decode-1", Role.DECODE)
M, M2 = info("mixed-0"), info("mixed-1")


def test_one_mixed_worker_serves_all() -> None:
    (route,) = routes(router(M), [request("a")])
    assert (route.prefill, route.decode) == (None, M.id)
    assert route.predicted_ttft_s == pytest.approx(0.1)
    assert "TTFT 100 ms" in route.reason


def test_a_long_prompt_is_split() -> None:
    (route,) = routes(router(P, D), [request("a", 1000)])
    assert (route.prefill, route.decode) == (P.id, D.id)
    assert route.predicted_ttft_s == pytest.approx(1.0 + 0.005 + 1e-6)


def test_an_idle_decode_worker_computes_a_short_prompt_itself() -> None:
    (route,) = routes(router(P, D), [request("a", 50)])
    assert (route.prefill, route.decode) == (None, D.id)


def test_a_short_prompt_does_not_disturb_running_decodes_while_the_prefill_pool_is_idle() -> None:
    made = router(P, D)
    first, second = routes(made, [request("a", 50)]), None
    made.prefilled(first[0].request, 0.1)
    (second,) = routes(made, [request("b", 50)], 0.1)
    assert (second.prefill, second.decode) == (P.id, D.id)


@pytest.mark.parametrize(("tpot_s", "local"), [(0.05, False), (0.06, True)])
def test_a_tight_target_between_tokens_keeps_prompts_off_decode_workers(
    tpot_s: float, local: bool
) -> None:
    """50 tokens and a decode step take 56 ms."""
    (route,) = routes(router(P, D, tpot_s=tpot_s), [request("a", 50)])
    assert (route.prefill is None) is local


def test_a_busy_prefill_pool_sends_a_long_prompt_to_decode_where_that_is_sooner() -> None:
    made = router(P, D, ttft_s=2.0)
    report(made, "prefill-0", waiting=3, waiting_tokens=3000)
    (route,) = routes(made, [request("a", 1000)])
    assert (route.prefill, route.decode) == (None, D.id)


def test_a_busy_prefill_pool_spares_decodes_that_would_miss_their_target() -> None:
    made = router(P, D, ttft_s=2.0, tpot_s=0.02)
    running = request("r", 10)
    assert made.choose(running, 0.0)
    made.prefilled(running.id, 0.0)
    report(made, "prefill-0", waiting=3, waiting_tokens=3000)
    report(made, "decode-0", running=1, running_sequences=1, context_tokens=10)
    (route,) = routes(made, [request("a", 1000)])  # a stall of 1 s is 16 ms a token
    assert route.prefill == P.id


def test_a_prompt_above_half_a_pool_runs_locally() -> None:
    made = router(replace(P, kv=replace(P.kv, pages=100)), D)  # pyright: ignore[reportArgumentType]
    (fits,) = routes(made, [request("a", 50 * 16 - 1)])
    assert fits.prefill == P.id
    made.settled(fits.request, 0.0)
    (local,) = routes(made, [request("b", 50 * 16)])
    assert (local.prefill, local.decode) == (None, D.id)


def test_offers_beyond_half_a_pool_hold_what_decode_can_not_do_sooner() -> None:
    made = router(P, D)
    report(made, "prefill-0", held_pages=PAGES // 2, offered_pages=PAGES // 2)
    report(made, "decode-0", waiting=1, waiting_tokens=5000)
    held = made.choose(request("a", 1000), 1.0)
    assert held == Hold(
        request=held.request,
        reason="half of the pool of all 1 prefill workers is taken",
        ask_again_at=1.1,
    )
    report(made, "decode-0")
    (route,) = routes(made, [request("a", 1000)], 1.2)
    assert route.prefill is None


def test_offers_beyond_half_a_pool_hold_when_decode_has_no_memory() -> None:
    made = router(P, D)
    report(made, "prefill-0", held_pages=PAGES // 2, offered_pages=PAGES // 2)
    report(made, "decode-0", running=1, held_pages=PAGES, peak_pages=PAGES)
    made_busy = request("x", 100)
    assert isinstance(made.choose(made_busy, 0.0), Route | Hold)
    assert isinstance(made.choose(request("a", 1000), 0.0), Hold)


def test_a_prompt_that_is_just_computed_still_takes_its_half_until_a_report() -> None:
    made = router(P, D)
    first = request("a", 7990)
    (route,) = routes(made, [first])
    assert route.prefill == P.id
    made.prefilled(first.id, 1.0)
    assert made.workers[1].load.handover_pages == 500
    report(made, "prefill-0", held_pages=500, offered_pages=500)
    assert made.workers[1].load.handover_pages == 500
    report(made, "prefill-0")
    assert made.workers[1].load.handover_pages == 0


def test_without_prefill_workers_decode_workers_do_all() -> None:
    made = router(P, D)
    health(made, "prefill-0", Health.LOST)
    (route,) = routes(made, [request("a", 4000)])
    assert (route.prefill, route.decode) == (None, D.id)


def test_without_decode_workers_prefill_workers_do_all() -> None:
    made = router(P, D)
    health(made, "decode-0", Health.LOST)
    (route,) = routes(made, [request("a", 4000)])
    assert (route.prefill, route.decode) == (None, P.id)


def test_a_role_can_change() -> None:
    made = router(P, D)
    made.observe(RoleChanged(D.id, Role.PREFILL), 0.0)
    made.observe(RoleChanged(P.id, Role.DECODE), 0.0)
    (route,) = routes(made, [request("a", 1000)])
    assert (route.prefill, route.decode) == (D.id, P.id)


@pytest.mark.parametrize("what", [Health.SUSPECT, Health.DRAINING])
def test_if_nobody_is_well_the_request_is_held(what: Health) -> None:
    made = router(M, M2)
    health(made, "mixed-0", what)
    (route,) = routes(made, [request("a")])
    assert route.decode == M2.id
    health(made, "mixed-1", what)
    assert isinstance(made.choose(request("b"), 0.0), Hold)


def test_an_empty_fleet_is_waited_for_then_refused() -> None:
    made = router(M, limits=RouterLimits(no_worker_grace_s=30.0))
    health(made, "mixed-0", Health.LOST, 100.0)
    held = made.choose(request("a"), 129.0)
    assert isinstance(held, Hold)
    assert held.ask_again_at == pytest.approx(129.1)
    refused = made.choose(request("a"), 130.0)
    assert isinstance(refused, Rejected)
    assert refused.reason is RejectReason.NO_WORKER
    assert "no worker has been there for 30 s" in refused.message
    made.observe(WorkerJoined(info("mixed-0", life="2")), 131.0)
    assert isinstance(made.choose(request("a"), 131.0), Route)


def test_a_fleet_that_was_never_there_is_waited_for_too() -> None:
    made = router(limits=RouterLimits(no_worker_grace_s=30.0))
    assert isinstance(made.choose(request("a"), 1000.0), Hold)
    assert isinstance(made.choose(request("a"), 1030.0), Rejected)


def test_too_long_for_any_worker_is_refused_too_long_for_one_goes_to_another() -> None:
    made = router(info("short", max_model_len=100), info("tall", max_model_len=500))
    (route,) = routes(made, [request("a", 100)])
    assert route.decode == WorkerId("tall")
    refused = made.choose(request("b", 500), 0.0)
    assert isinstance(refused, Rejected)
    assert refused.reason is RejectReason.TOO_LONG
    assert "longest context is 500 tokens" in refused.message
    health(made, "tall", Health.SUSPECT)
    assert isinstance(made.choose(request("c", 100), 0.0), Hold)


def test_more_than_the_whole_memory_is_too_long() -> None:
    made = router(info("small", pages=10))
    refused = made.choose(request("a", 161), 0.0)
    assert isinstance(refused, Rejected)
    assert refused.reason is RejectReason.TOO_LONG


def test_pages_are_handed_over_between_equals_only() -> None:
    for other in (
        info("decode-0", Role.DECODE, numerics="avx2"),
        info("decode-0", Role.DECODE, layout="head-first"),
    ):
        (route,) = routes(router(P, other), [request("a", 1000)])
        assert (route.prefill, route.decode) == (None, other.id)
    twin = info("decode-9", Role.DECODE)
    made = router(P, info("decode-0", Role.DECODE, numerics="avx2"), twin)
    (route,) = routes(made, [request("a", 1000)])
    assert (route.prefill, route.decode) == (P.id, twin.id)


def test_a_failover_stays_within_its_numerics_and_says_when_it_can_not() -> None:
    made = router(info("a", numerics="x"), info("b", numerics="y"), info("c", numerics="x"))
    (first,) = routes(made, [request("r")])
    assert first.decode == WorkerId("a")
    health(made, "a", Health.LOST)
    made.settled(first.request, 1.0, again=True)
    (second,) = routes(made, [request("r", attempt=2)], 1.0)
    assert (second.decode, second.exact) == (WorkerId("c"), True)
    health(made, "c", Health.LOST)
    (third,) = routes(made, [request("r", attempt=3)], 2.0)
    assert (third.decode, third.exact) == (WorkerId("b"), False)
    made.settled(first.request, 3.0)
    assert made.open_requests == 0


def test_a_failover_of_unknown_origin_is_exact_only_among_equals() -> None:
    (route,) = routes(router(info("a"), info("b")), [request("r", attempt=2)])
    assert route.exact
    (route,) = routes(router(info("a"), info("b", numerics="y")), [request("r", attempt=2)])
    assert not route.exact


def test_decode_is_chosen_again_by_load_at_the_offer() -> None:
    made = router(P, D, D2)
    one = request("a", 1000)
    (route,) = routes(made, [one])
    assert route.decode == D.id
    made.prefilled(one.id, 1.0)
    report(made, "decode-0", 1.0, running=60, running_sequences=60, context_tokens=60_000)
    # The report speaks of 60 requests that the router did not send: not ours, but load.
    assert made.choose_decode(offer_of(P, one), one, 1.0) == D2.id
    loads = {worker.info.id: worker.load.sequences for worker in made.workers}
    assert loads == {P.id: 0, D.id: 60, D2.id: 1}


def test_an_offer_waits_while_its_takers_are_full_and_its_tentative_load_stays() -> None:
    made = router(P, D)
    one = request("a", 1000)
    routes(made, [one])
    made.prefilled(one.id, 1.0)
    report(made, "decode-0", 1.0, running=9, waiting=2, held_pages=PAGES, peak_pages=PAGES)
    assert isinstance(made.choose_decode(offer_of(P, one), one, 1.0), Hold)
    assert made.workers[0].load.sequences == 1
    report(made, "decode-0", 2.0)
    assert made.choose_decode(offer_of(P, one), one, 2.0) == D.id


def test_the_owner_goes_on_itself_if_nobody_else_is_left_or_if_it_is_mixed() -> None:
    one = request("a", 1000)
    made = router(P, D)
    routes(made, [one])
    made.prefilled(one.id, 1.0)
    health(made, "decode-0", Health.LOST, 1.0)
    assert made.choose_decode(offer_of(P, one), one, 1.0) == P.id
    made = router(M)
    assert made.choose_decode(offer_of(M, one), one, 1.0) == M.id


def test_an_offer_that_nobody_can_read_is_given_up_and_one_that_somebody_may_soon_is_not() -> None:
    one = request("a", 1000)
    made = router(P, D, info("decode-9", Role.DECODE, numerics="other"))
    routes(made, [one])
    made.prefilled(one.id, 1.0)
    health(made, "prefill-0", Health.SUSPECT, 1.0)
    health(made, "decode-0", Health.SUSPECT, 1.0)
    assert isinstance(made.choose_decode(offer_of(P, one), one, 1.0), Hold)
    health(made, "decode-0", Health.DRAINING, 1.0)
    made.observe(WorkerJoined(info("prefill-0", Role.PREFILL, life="2")), 2.0)
    refused = made.choose_decode(offer_of(P, one), one, 2.0)
    assert isinstance(refused, Rejected)
    assert refused.reason is RejectReason.NO_WORKER
    assert "prefill-0 offers" in refused.message


def test_an_offer_of_a_decode_worker_that_died_goes_to_the_next_without_a_new_route() -> None:
    made = router(P, D, D2)
    one = request("a", 1000)
    routes(made, [one])
    made.prefilled(one.id, 1.0)
    assert made.choose_decode(offer_of(P, one), one, 1.0) == D.id
    health(made, "decode-0", Health.LOST, 2.0)
    made.settled(one.id, 2.0)
    again = replace(one, attempt=2)
    assert made.choose_decode(offer_of(P, again), again, 2.0) == D2.id
    made.settled(one.id, 3.0)
    assert made.open_requests == 0


def test_whoever_refused_is_left_alone_for_a_moment() -> None:
    made = router(M, M2)
    made.refused(M.id, 0.0)
    assert {route.decode for route in routes(made, [request("a"), request("b")])} == {M2.id}
    assert routes(made, [request("c")], 0.1)[0].decode == M.id


def test_what_a_worker_holds_already_counts_once_loads_are_similar() -> None:
    made = router(M, M2, parts=Parts(prefixes=holding({M2.id: 300})), ttft_s=60.0, tpot_s=1.0)
    chosen = routes(made, [request(f"r{number}", 400) for number in range(3)])
    assert [route.decode for route in chosen] == [M2.id] * 3
    assert chosen[0].predicted_ttft_s == pytest.approx(0.1)


def test_the_request_s_own_targets_count() -> None:
    made = router(P, D, ttft_s=30.0)
    report(made, "prefill-0", waiting=3, waiting_tokens=3000)
    patient, hasty = request("a", 1000), request("b", 1000, slo=Slo(ttft_s=2.0, tpot_s=1.0))
    assert routes(made, [patient])[0].prefill == P.id
    made.settled(patient.id, 0.0)
    assert routes(made, [hasty])[0].prefill is None


def test_time_waited_counts_against_the_target() -> None:
    made = router(P, D, ttft_s=2.0)
    report(made, "prefill-0", waiting=1, waiting_tokens=500)
    assert routes(made, [request("a", 1000, arrived_at=10.0)], 10.0)[0].prefill == P.id
    made.settled(request("a").id, 10.0)
    assert routes(made, [request("a", 1000, arrived_at=9.2)], 10.0)[0].prefill is None


def test_n_sequences_and_what_they_resume_count_as_load() -> None:
    made = router(M)
    one = request("a", 100, n=3, resumed=((1,) * 10, (1,) * 20, (1,) * 30), done=(2,), attempt=2)
    routes(made, [one])
    load = made.workers[0].load
    assert (load.sequences, load.queued_tokens, load.context_tokens) == (2, 130, 230)


def test_more_sequences_than_a_worker_runs_wait_elsewhere() -> None:
    made = router(M, M2, limits=RouterLimits(max_sequences=4))
    chosen = [made.choose(request(f"r{number}"), 0.0) for number in range(14)]
    assert sum(isinstance(answer, Route) for answer in chosen) == 8
    assert all(isinstance(answer, Hold) for answer in chosen[8:])
