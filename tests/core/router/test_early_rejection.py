"""Who is refused at once: only who may be, only in vain, with the target that is out of reach."""

from itertools import permutations
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from router_kit import info, offer_of, report, request, router

from antiphon.core.router import Parts, Router
from antiphon.core.router.early_rejection import EarlyRejection, Prospect, _Way
from antiphon.types import Rejected, RejectReason, Request, Role, Route, Slo, WorkerId

TARGETS = Slo(ttft_s=1.0, tpot_s=0.1)


def sheds(*infos: Any, admission: str = "early-reject", **config: Any) -> Router:
    return router(*infos, admission=admission, ttft_s=1.0, tpot_s=0.1, **config)


def asked(id: str = "new", tokens: int = 100, priority: int = 0, **more: Any) -> Request:
    made = request(id, tokens, **more)
    object.__setattr__(made, "priority", priority)
    return made


def test_an_idle_fleet_refuses_nobody_but_who_is_too_long_for_the_target() -> None:
    made = sheds(info("a"))
    assert made.in_vain(asked(tokens=900), 0.0) is None
    refused = made.in_vain(asked(tokens=1100), 0.0)
    assert refused is not None
    assert refused.reason is RejectReason.TTFT_UNREACHABLE
    assert "first token may take 1.10 s, and the target is 1 s" in refused.message


def test_the_queue_at_the_workers_and_at_the_gateway_counts() -> None:
    made = sheds(info("a"), info("b"))
    for number in range(6):  # 0.3 s on each
        assert isinstance(made.choose(request(f"r{number}"), 0.0), Route)
    assert made.in_vain(asked(), 0.0) is None
    assert made.in_vain(asked(), 0.0, ahead_requests=2, ahead_tokens=200) is None
    refused = made.in_vain(asked(), 0.0, ahead_requests=4, ahead_tokens=400)
    assert refused is not None
    assert refused.reason is RejectReason.TTFT_UNREACHABLE
    assert refused.retry_after_s == 1.0


def test_what_it_has_waited_counts() -> None:
    made = sheds(info("a"))
    assert made.in_vain(asked(arrived_at=0.0), 0.8) is None
    assert made.in_vain(asked(arrived_at=0.0), 0.95) is not None


def test_its_own_targets_count() -> None:
    made = sheds(info("a"))
    assert made.in_vain(asked(tokens=1100, slo=Slo(ttft_s=2.0, tpot_s=0.1)), 0.0) is None
    assert made.in_vain(asked(tokens=1100, slo=Slo(ttft_s=inf, tpot_s=inf)), 0.0) is None
    assert made.in_vain(asked(slo=Slo(ttft_s=0.05, tpot_s=1.0)), 0.0) is not None


def decoding(made: Router, sequences: int, worker: str = "d") -> None:
    report(made, worker, running=sequences, running_sequences=sequences, context_tokens=sequences)


def test_too_many_that_decode_are_named() -> None:
    made = sheds(info("d"))
    decoding(made, 90)
    assert made.in_vain(asked(tokens=10), 0.0) is None
    decoding(made, 120)
    refused = made.in_vain(asked(tokens=10), 0.0)
    assert refused is not None
    assert refused.reason is RejectReason.TPOT_UNREACHABLE
    assert "the target is 100 ms" in refused.message


def learned(made: Router, decode_s: float) -> None:
    """One request decoded for so long."""
    made.choose(request("first"), 0.0)
    made.prefilled(request("first").id, 0.0)
    made.settled(request("first").id, decode_s)


@pytest.mark.parametrize(("decode_s", "refused"), [(0.2, False), (60.0, True)])
def test_those_that_will_have_ended_by_then_do_not_count(decode_s: float, refused: bool) -> None:
    """Mooncake's point: load is predicted for the time at which the prompt is computed."""
    made = sheds(info("p", Role.PREFILL), info("d", Role.DECODE))
    learned(made, decode_s)
    for number in range(99):
        one = request(f"r{number}", 1)
        made.choose(one, 0.0)
        made.prefilled(one.id, 0.0)
        assert made.choose_decode(offer_of(info("p"), one), one, 0.0) == "d"
    assert (made.in_vain(asked(tokens=500), 0.0) is not None) == refused
    by_load = sheds(info("p", Role.PREFILL), info("d", Role.DECODE), admission="load-reject")
    learned(by_load, decode_s)
    assert by_load.in_vain(asked(tokens=500), 0.0) is None


def test_those_that_will_decode_by_then_count() -> None:
    """What present load does not show: prompts that are computed now decode soon."""
    answers: dict[str, Rejected | None] = {}
    for admission in ("early-reject", "load-reject"):
        made = sheds(info("p", Role.PREFILL), info("d", Role.DECODE), admission=admission)
        learned(made, 60.0)
        for number in range(99):
            assert isinstance(made.choose(request(f"r{number}", 1), 0.0), Route)
        answers[admission] = made.in_vain(asked(tokens=100), 0.0)
    assert answers["load-reject"] is None
    early = answers["early-reject"]
    assert early is not None
    assert early.reason is RejectReason.TPOT_UNREACHABLE


def test_room_that_comes_too_late_counts() -> None:
    made = sheds(info("a", pages=100))
    learned(made, 40.0)
    report(made, "a", total_pages=100, held_pages=60, peak_pages=60, running=5, running_sequences=5)
    assert made.in_vain(asked(tokens=160), 0.0) is None, "there is room"
    report(made, "a", total_pages=100, held_pages=96, peak_pages=96, running=8, running_sequences=8)
    refused = made.in_vain(asked(tokens=160), 0.0)
    assert refused is not None
    assert refused.reason is RejectReason.TTFT_UNREACHABLE


def test_who_waits_for_room_where_it_is_to_decode_counts() -> None:
    """As it was, four of five of a split fleet's tokens were in vain at twice what it can do."""
    made = sheds(info("p", Role.PREFILL), info("d", Role.DECODE, pages=1000))
    learned(made, 10.0)
    many = {"running": 70, "running_sequences": 70, "context_tokens": 70}
    full = {"total_pages": 1000, "held_pages": 980, "peak_pages": 980}
    report(made, "d", **many, **full)
    assert made.in_vain(asked(tokens=160), 0.0) is None
    report(made, "d", pulling=20, roomless=20, **many, **full)
    refused = made.in_vain(asked(tokens=160), 0.0)
    assert refused is not None
    assert refused.reason is RejectReason.TPOT_UNREACHABLE


def test_nobody_is_refused_for_what_nobody_has_seen_and_what_lasts_is_found_out() -> None:
    """No request has ended yet: a place was taken to be free after a minute, whatever was asked."""
    made = sheds(info("a", pages=100))
    for number in range(8):
        made.choose(request(f"r{number}"), 0.0)
        made.prefilled(request(f"r{number}").id, 0.0)
    report(made, "a", total_pages=100, held_pages=96, peak_pages=96, running=8, running_sequences=8)
    assert made.in_vain(asked(tokens=160, arrived_at=0.1), 0.1) is None
    refused = made.in_vain(asked(tokens=160, arrived_at=20.0), 20.0)
    assert refused is not None
    assert refused.reason is RejectReason.TTFT_UNREACHABLE, "these take long, and have its room"


facts = st.lists(st.tuples(st.integers(1, 1500), st.booleans()), max_size=20)


@settings(deadline=None, max_examples=80)
@given(
    facts,
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["all", "early-reject", "load-reject"]),
    st.integers(0, 50),
    st.integers(0, 20_000),
)
def test_only_what_may_be_shed_is_and_only_if_a_target_is_missed(
    load: list[tuple[int, bool]], priority: int, shed_from: int, admission: str, n: int, tokens: int
) -> None:
    made = sheds(info("a"), info("b"), admission=admission, shed_from=shed_from)
    play(made, load)
    answer = made.in_vain(
        asked(priority=priority), 0.0, ahead_requests=n, ahead_tokens=tokens * (n > 0)
    )
    if admission == "all" or priority < shed_from:
        assert answer is None
    if not load and not n:
        assert answer is None, "nothing is in its way"
    assert made.open_requests == len(load), "asking changes nothing"


def play(made: Router, load: list[tuple[int, bool]]) -> None:
    for number, (tokens, computed) in enumerate(load):
        one = request(f"r{number}", tokens)
        assert isinstance(made.choose(one, 0.0), Route)
        if computed:
            made.prefilled(one.id, 0.0)


@settings(deadline=None, max_examples=40)
@given(facts, st.integers(0, 20), st.integers(1, 5_000), st.integers(1, 10))
def test_more_before_it_never_makes_it_welcome(
    load: list[tuple[int, bool]], n: int, tokens: int, more: int
) -> None:
    made = sheds(info("a"), info("b"))
    play(made, load)
    few = made.in_vain(asked(), 0.0, ahead_requests=n, ahead_tokens=tokens * (n > 0))
    many = made.in_vain(
        asked(), 0.0, ahead_requests=n + more, ahead_tokens=tokens * (n > 0) + tokens * more
    )
    assert few is None or many is not None


def test_of_equal_ways_the_order_of_workers_decides_nothing(monkeypatch: Any) -> None:
    """As far beyond one target as another way is beyond the other one: the same is said."""
    ways = [_Way(ttft_s=2.0, tpot_s=0.05), _Way(0.5, 0.2), _Way(0.25, 0.2)]
    answers: set[str] = set()
    for order in permutations(ways):
        monkeypatch.setattr(Prospect, "ways", lambda *_, order=order: list(order))
        refused = sheds(info("a")).in_vain(asked(), 0.0)
        assert refused is not None
        answers.add(f"{refused.reason} {refused.message} {refused.retry_after_s}")
    assert len(answers) == 1


class ShedsAnybody(EarlyRejection):
    def sheds(self, request: Request) -> bool:
        return True


def test_the_law_finds_who_sheds_anybody() -> None:
    made = sheds(info("a"), admission="all", parts=Parts(rejection=ShedsAnybody))
    for number in range(20):
        made.choose(request(f"r{number}"), 0.0)
    assert made.in_vain(asked(), 0.0) is not None, "the control has to be found"


# ── waiting at the gateway ───────────────────────────────────────────────────────────────────


def test_requests_wait_at_the_gateway_once_all_have_enough() -> None:
    made = router(info("a"), info("b"), queue_s=0.25)
    for number in range(6):  # 0.3 s on each
        assert isinstance(made.choose(request(f"r{number}"), 0.0), Route)
    answer = made.choose(request("next"), 0.0)
    assert not isinstance(answer, Route | Rejected)
    assert answer.reason == "all 2 workers have prompts for 0.25 s"
    made.prefilled(request("r0").id, 0.0)
    assert isinstance(made.choose(request("next"), 0.0), Route)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 800), min_size=1, max_size=30), st.integers(1, 3))
def test_nobody_waits_while_a_worker_has_less_than_that(sizes: list[int], workers: int) -> None:
    """Work conservation: who holds requests back has given every worker enough to do."""
    made = router(*(info(f"w{k}") for k in range(workers)), queue_s=0.5)
    for number, tokens in enumerate(sizes):
        answer = made.choose(request(f"r{number}", tokens), 0.0)
        queued = [one.load.queued_s for one in made.workers]
        if not isinstance(answer, Route):
            assert min(queued) > 0.5
        else:
            assert WorkerId(answer.decode) in {one.info.id for one in made.workers}


def test_a_pool_that_has_enough_still_lets_a_decode_worker_help_out() -> None:
    made = router(info("p", Role.PREFILL), info("d", Role.DECODE), queue_s=0.1, ttft_s=0.2)
    first, second, third = (made.choose(request(f"r{k}", 150), 0.0) for k in range(3))
    assert isinstance(first, Route)
    assert first.prefill == "p"
    assert isinstance(second, Route)
    assert second.prefill is None
    assert not isinstance(third, Route | Rejected)
