"""Fleets in virtual time: what calls see of them."""

import itertools
from dataclasses import replace

import pytest
from small_fleet import LINK, STEPS, pool, ran, single_calls, spec

from antiphon.core.faults import At, Crash, FaultPlan, ProcessFault
from antiphon.core.goodput import tpot_s, ttft_s
from antiphon.sim.fleet import Fleet, TokenSession, TokenTurn, UserRules
from antiphon.sim.fleet.token_sessions import answer_tokens
from antiphon.types import CallError, Request, Role
from antiphon.workload import AnswerOf

MIXED = pool(Role.MIXED, 1)
APART = (pool(Role.PREFILL, 1), pool(Role.DECODE, 1))
MESSAGE_S = 0.0005


def test_a_lone_call_takes_the_time_of_its_steps() -> None:
    run = ran(spec(MIXED), single_calls(1, 1.0, prompt=100, output=5))
    (record,) = run.records
    prefill_s = STEPS.fixed_s + 100 * 1e-4 + 1e-4 + 100 * 1e-7
    decode_s = [STEPS.fixed_s + 2e-4 + (101 + step) * 1e-7 for step in range(4)]
    assert record.error is None
    assert record.prompt_tokens == 100
    assert record.output_tokens == 5
    # There and back: the request, then the token.
    assert ttft_s(record) == pytest.approx(prefill_s + 2 * MESSAGE_S)
    assert tpot_s(record) == pytest.approx(sum(decode_s) / 4)
    assert len(record.token_at_s) == 5


def test_apart_a_call_takes_a_hand_over_more() -> None:
    together = ran(spec(MIXED), single_calls(1, 1.0, prompt=500, output=30)).records[0]
    # A policy that goes by no prediction: an idle decode worker would do it all itself.
    fleet = spec(*APART, policy="least-loaded")
    apart = ran(fleet, single_calls(1, 1.0, prompt=500, output=30)).records[0]
    first_s, last_s = ttft_s(apart), apart.token_at_s[-1]
    assert first_s == pytest.approx(ttft_s(together))
    extra_s = last_s - together.token_at_s[-1]
    pages = -(-500 // 16)
    assert extra_s > LINK.seconds(pages * 16 * 1000)
    assert extra_s < LINK.seconds(pages * 16 * 1000) + 20 * MESSAGE_S


@pytest.mark.parametrize("pools", [(pool(Role.MIXED, 2),), APART], ids=["mixed", "apart"])
def test_runs_of_steps_change_nothing_that_calls_see(pools: tuple[object, ...]) -> None:
    single = ran(spec(*pools, repeats=1), single_calls(60, 0.07))  # type: ignore[arg-type]
    runs = ran(spec(*pools, repeats=64), single_calls(60, 0.07))  # type: ignore[arg-type]
    for one, other in zip(single.records, runs.records, strict=True):
        assert one.output_tokens == other.output_tokens
        assert ttft_s(one) == pytest.approx(ttft_s(other), rel=0.02)
        assert tpot_s(one) == pytest.approx(tpot_s(other), rel=0.02)


def test_equal_runs_give_equal_records() -> None:
    one, other = (ran(spec(*APART), single_calls(40, 0.05)) for _ in range(2))
    assert one.records == other.records


def test_more_load_waits_longer() -> None:
    idle = ran(spec(MIXED), single_calls(30, 2.0))
    busy = ran(spec(MIXED), single_calls(30, 0.005))
    assert max(ttft_s(one) or 0 for one in busy.records) > 3 * max(
        ttft_s(one) or 0 for one in idle.records
    )


def test_answers_end_where_they_end_whatever_is_allowed() -> None:
    run = ran(spec(MIXED), single_calls(5, 0.1, output=7), UserRules(max_tokens=500))
    assert [one.output_tokens for one in run.records] == [7] * 5


def test_what_http_takes_comes_before_the_first_token() -> None:
    plain, fronted = (
        ran(spec(MIXED), single_calls(3, 5.0), UserRules(front_s=front)) for front in (0.0, 0.125)
    )
    for one, other in zip(plain.records, fronted.records, strict=True):
        assert (ttft_s(other) or 0) - (ttft_s(one) or 0) == pytest.approx(0.125)
        assert other.ended_at_s - one.ended_at_s == pytest.approx(0.125)


def asked(output: int, rules: UserRules) -> list[object]:
    """What the gateway is asked for, in all that decisions may depend on."""
    requests: list[object] = []
    fleet = Fleet(spec(MIXED), single_calls(3, 0.1, output=output), rules, lambda _: None)
    submit = fleet.cluster.gateway.submit

    def heard(request: Request, patience_s: float | None) -> None:
        requests.append((request.id, request.prompt, request.sampling, request.slo))
        submit(request, patience_s)

    fleet.cluster.gateway.submit = heard  # type: ignore[method-assign]
    fleet.run()
    return requests


def test_requests_do_not_say_how_long_their_answers_will_be() -> None:
    rules = UserRules(max_tokens=500)
    assert asked(7, rules) == asked(400, rules)
    assert asked(7, UserRules()) != asked(400, UserRules())


def chat(turns: int) -> TokenSession:
    """A chat whose questions quote all that was said."""
    question = [answer_tokens(900 + turn, 1, 70) for turn in range(turns)]
    made: list[TokenTurn] = []
    parts: tuple[object, ...] = ()
    for turn in range(turns):
        parts = (*parts, question[turn])
        after = (turn - 1,) if turn else ()
        made.append(TokenTurn(parts, 30, after, 0.5 if turn else 0.0))  # type: ignore[arg-type]
        parts = (*parts, AnswerOf(turn))
    return TokenSession(0.0, 0, tuple(made))


def test_a_chat_goes_on_after_its_answers_and_finds_them_cached() -> None:
    records = ran(spec(MIXED), [chat(3)]).records
    assert [one.turn for one in records] == [0, 1, 2]
    for before, after in itertools.pairwise(records):
        assert after.due_at_s == pytest.approx(before.ended_at_s + 0.5)
    # 70, then 70 + 29 + 70, …: the end mark is no part of what is quoted.
    assert [one.prompt_tokens for one in records] == [70, 169, 268]
    assert [one.cached_tokens for one in records] == [0, 64, 192]


def test_who_follows_a_call_that_failed_is_abandoned() -> None:
    long = TokenTurn((answer_tokens(1, 1, 5000),), 5)
    session = TokenSession(0.0, 0, (long, replace(long, after=(0,)), replace(long, after=(1,))))
    records = ran(spec(MIXED), [session]).records
    assert [one.error for one in records] == [
        CallError.OVERLOADED,
        CallError.ABANDONED,
        CallError.ABANDONED,
    ]


def test_a_worker_that_dies_costs_time_and_no_call() -> None:
    crash = ProcessFault(At(3.0), "decode-0", Crash(1.0))
    made = spec(pool(Role.PREFILL, 2), pool(Role.DECODE, 2), faults=FaultPlan(1, (crash,)))
    run = ran(made, single_calls(80, 0.05))
    assert len(run.fleet.cluster.faults.injected) == 1
    assert [one.error for one in run.records] == [None] * 80
    assert all(one.output_tokens == 20 for one in run.records)
