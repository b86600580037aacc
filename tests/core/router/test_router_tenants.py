"""Tenants with less than others are sent ahead to who computes prompts, and are taken last of all
to be in vain; room to decode in is the same for all."""

from dataclasses import replace

import pytest
from router_kit import info, offer_of, report, request, router

from antiphon.core.router import Router, RouterLimits
from antiphon.core.router.early_rejection import Ahead
from antiphon.types import Hold, Rejected, Request, Role, Route, WorkerInfo


def of(tenant: str, number: int = 0, tokens: int = 100) -> Request:
    return replace(request(f"{tenant}{number}", tokens), tenant_salt=tenant.encode())


def flood(made: Router, most: int = 30) -> int:
    """How many of tenant a are taken, until one is held."""
    for number in range(most):
        if isinstance(made.choose(of("a", number), 0.0), Hold):
            return number
    raise AssertionError("all are taken")


# ── where a prompt is computed ───────────────────────────────────────────────────────────────


def test_whoever_has_less_is_sent_ahead_while_prompts_wait_for_twice_as_long_at_most() -> None:
    made = router(info("w"), queue_s=0.25)
    assert flood(made) == 3
    taken = [isinstance(made.choose(of("b", number), 0.0), Route) for number in range(4)]
    assert taken == [True, True, False, False], "until it has 0.5 s; and not more than others"


def test_it_is_sent_ahead_of_who_waits_for_room_there() -> None:
    made = router(info("w"), queue_s=1.0, limits=RouterLimits(max_sequences=4))
    assert flood(made) == 4
    report(made, "w", waiting=2, running=2, running_sequences=2, waiting_tokens=200)
    assert isinstance(made.choose(of("a", 9), 0.0), Hold)
    assert isinstance(made.choose(of("b"), 0.0), Route)


# ── where only room to decode is wanted ──────────────────────────────────────────────────────


def full(prefill: WorkerInfo, decode: WorkerInfo) -> Router:
    """Tenant a has taken all the room to decode in."""
    made = router(prefill, decode, queue_s=2.0, conditional_split=False)
    for number in range(4):
        one = of("a", number)
        assert isinstance(made.choose(one, 0.0), Route)
        made.prefilled(one.id, 0.0)
        assert made.choose_decode(offer_of(prefill, one), one, 0.0) == decode.id
    report(made, "d", total_pages=100, held_pages=98, peak_pages=98, running=2, running_sequences=2)
    return made


def test_room_to_decode_in_is_not_taken_ahead() -> None:
    prefill = info("p", Role.PREFILL)
    made = full(prefill, info("d", Role.DECODE, pages=100))
    one = of("b")
    assert isinstance(made.choose_decode(offer_of(prefill, one), one, 0.0), Hold)
    assert isinstance(made.choose(one, 0.0), Hold), "nor is it computed for a worker that is full"


# ── who is refused at once ───────────────────────────────────────────────────────────────────


def busy(small: int) -> Router:
    """0.4 s of prompts: of tenant a, and of so many tenants with a prompt each."""
    made = router(info("w"), admission="early-reject", ttft_s=1.0, tpot_s=1.0)
    others = [of(f"t{number}") for number in range(small)]
    for one in (*others, of("a", 0, 400 - 100 * small)):
        assert isinstance(made.choose(one, 0.0), Route)
    return made


def test_waits_count_once_for_whoever_has_far_less_and_twice_for_others() -> None:
    made = router(info("w"), admission="early-reject", ttft_s=1.0, tpot_s=1.0)
    for number in range(6):
        assert isinstance(made.choose(of("a", number), 0.0), Route)
    assert isinstance(made.in_vain(of("a", 9), 0.0), Rejected)
    assert made.in_vain(of("b"), 0.0) is None


@pytest.mark.parametrize(("small", "refused"), [(0, False), (1, True)])
def test_waits_count_longer_by_what_goes_before(small: int, refused: bool) -> None:
    """Of the same work ahead a part is of a tenant that has less."""
    made = busy(small)
    assert isinstance(made.in_vain(of("a", 9), 0.0), Rejected) == refused


def test_no_wait_counts_more_than_four_times() -> None:
    assert Ahead(overtaken=0.25).caution == pytest.approx(8 / 3)
    assert Ahead(overtaken=954 / 956).caution == 4.0
    assert Ahead(overtaken=954 / 956, share=0.1).caution == 1.0


def test_what_a_tenant_has_counts_until_it_is_over() -> None:
    made = router(info("w"), queue_s=0.25)
    taken = flood(made)
    for number in range(taken):
        made.prefilled(of("a", number).id, 0.0)
    assert isinstance(made.choose(of("b"), 0.0), Route)
    assert isinstance(made.choose(of("b", 1), 0.0), Route)
    assert isinstance(made.choose(of("b", 2), 0.0), Route), "b has as much as a has"
    assert isinstance(made.choose(of("a", 8), 0.0), Hold), "and 0.3 s wait"
    for number in range(taken - 1):
        made.settled(of("a", number).id, 1.0)
    assert isinstance(made.choose(of("b", 3), 1.0), Hold), "b has more than a has left"
    assert isinstance(made.choose(of("a", 9), 1.0), Route)
