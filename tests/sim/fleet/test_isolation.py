"""A tenant that floods a fleet does not keep small ones from their targets, whatever is short."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from small_fleet import pool, ran, spec

from antiphon.core.draws import Draws
from antiphon.core.goodput import judge, ttft_s
from antiphon.sim.fleet import FleetSpec, Pool, TokenSession, TokenTurn, UserRules
from antiphon.sim.fleet.token_sessions import answer_tokens
from antiphon.types import CallRecord, Role, Slo

SLO = Slo(ttft_s=1.0, tpot_s=0.1)
RULES = UserRules(slos=(("", SLO),), max_tokens=200, all_stamps=False)
FLOOD_PER_S, SMALL_PER_S, SECONDS = 80.0, 2.5, 5.0
FLEETS = {
    "prefill is short": (pool(Role.MIXED, 1),),
    "memory is short": (pool(Role.MIXED, 1, kv_tokens=6_000),),
    "split": (pool(Role.PREFILL, 1), pool(Role.DECODE, 1)),
    "split, and memory to decode is short": (
        pool(Role.PREFILL, 1),
        pool(Role.DECODE, 1, kv_tokens=6_000),
    ),
}


def calls(
    tenant: str, rate_per_s: float, first: int, begin_s: float = 0.0
) -> Iterator[TokenSession]:
    """At even times, with lengths by chance."""
    draws = Draws(1)
    for count in range(int(rate_per_s * SECONDS)):
        prompt = draws.below(400, tenant, "prompt", count) + 100
        output = draws.below(60, tenant, "output", count) + 20
        number = first + count
        turn = TokenTurn((answer_tokens(number, 9, prompt),), output)
        at_s = begin_s + count / rate_per_s
        yield TokenSession(at_s, number, (turn,), slo_class=tenant, tenant=tenant)


def small_calls() -> list[TokenSession]:
    """Of two small tenants, who come when the flood has all, and its first answers have ended."""
    return [*calls("one", SMALL_PER_S, 5000, 1.5), *calls("two", SMALL_PER_S, 6000, 1.6)]


def flooded(*, one_tenant: bool = False) -> list[TokenSession]:
    """The small ones' calls beside several times as many as the fleet can serve."""
    both = [*calls("flood", FLOOD_PER_S, 0), *small_calls()]
    both.sort(key=lambda one: (one.at_s, one.number))
    return [replace(one, tenant="") for one in both] if one_tenant else both


def fleet(pools: tuple[Pool, ...], **router: object) -> FleetSpec:
    made = spec(*pools)
    rules = replace(made.config.router, **router)
    return replace(made, config=replace(made.config, router=rules))


def small_of(records: list[CallRecord]) -> list[CallRecord]:
    return [one for one in records if one.slo_class != "flood"]


def kept(records: list[CallRecord]) -> float:
    """What share of the small tenants' calls met both targets."""
    small = small_of(records)
    assert len(small) == len(small_calls()), "each call has a record"
    return sum(judge(one, SLO).met for one in small) / len(small)


@pytest.mark.parametrize(
    ("name", "admission"),
    [*((name, "all") for name in FLEETS), ("memory is short", "early-reject")],
)
def test_small_tenants_are_nearly_untouched(name: str, admission: str) -> None:
    made = fleet(FLEETS[name], admission=admission)
    alone = ran(made, sorted(small_calls(), key=lambda one: (one.at_s, one.number)), RULES).records
    beside = ran(made, flooded(), RULES).records
    assert kept(alone) == 1.0
    assert kept(beside) >= 0.9, sorted(ttft_s(one) or 99.0 for one in small_of(beside))[-8:]
    flood = [one for one in beside if one.slo_class == "flood"]
    assert sum(not judge(one, SLO).met for one in flood) > len(flood) / 4, "it is a flood"


def test_a_burst_on_a_fresh_fleet_is_not_refused_for_answers_that_nobody_has_seen() -> None:
    """Nothing has ended, so that nobody knows how soon there is room: soon enough, for all."""
    made = fleet((pool(Role.MIXED, 1, kv_tokens=1_600),), admission="early-reject")
    turns = [TokenTurn((answer_tokens(number, 9, 100),), 20) for number in range(16)]
    burst = [TokenSession(0.01 * number, number, (turn,)) for number, turn in enumerate(turns)]
    records = ran(made, burst, RULES).records
    assert [one.error for one in records] == [None] * 16
    assert all(judge(one, SLO).met for one in records)


@pytest.mark.parametrize("name", FLEETS)
def test_without_tenants_the_flood_is_everybodys(name: str) -> None:
    """The negative control: the same calls, as if nobody had a key."""
    beside = ran(fleet(FLEETS[name]), flooded(one_tenant=True), RULES).records
    assert kept(beside) < 0.6
