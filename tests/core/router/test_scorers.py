"""Scorers: a total order, similar options take turns, chance is a function of the seed."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.router import Option, scorer_of
from antiphon.errors import BugError
from antiphon.types import WorkerId

POLICIES = ["slo", "random", "round-robin", "least-loaded", "prefix-gated", "overlap-cost"]


@st.composite
def options(draw: st.DrawFn) -> list[Option]:
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    return [
        Option(
            workers=(WorkerId(name),),
            ttft_s=0.0,
            queued_s=0.0,
            tpot_s=0.0,
            headroom=draw(st.sampled_from([-1.0, 0.0, 0.01, 0.5, 0.515])),
            work_s=draw(st.sampled_from([0.0, 1.0])),
            requests=draw(st.integers(0, 2)),
            chosen=draw(st.integers(0, 2)),
            matched=draw(st.sampled_from([0.0, 0.2, 0.5])),
            prefill_tokens=draw(st.integers(0, 2)),
            context_tokens=draw(st.integers(0, 2)),
        )
        for name in names
    ]


@given(options(), st.sampled_from(POLICIES), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=200)
def test_the_order_of_options_does_not_matter(given_: list[Option], policy: str, chance) -> None:
    shuffled = list(given_)
    chance.shuffle(shuffled)
    assert scorer_of(policy, 1).best(given_) == scorer_of(policy, 1).best(shuffled)


@given(options())
@settings(deadline=None, max_examples=200)
def test_most_headroom_gives_up_no_more_than_predictions_can_tell(given_: list[Option]) -> None:
    best = scorer_of("slo", 0).best(given_)
    assert best.headroom >= max(option.headroom for option in given_) - 0.02
    for option in given_:
        if option.headroom >= best.headroom:
            assert (best.work_s, best.turn) <= (option.work_s, option.turn)


def test_chance_is_even_and_follows_the_seed() -> None:
    four = [
        Option(
            workers=(WorkerId(name),),
            ttft_s=0,
            queued_s=0,
            tpot_s=0,
            headroom=0,
            work_s=0,
            requests=0,
            chosen=0,
        )
        for name in "abcd"
    ]

    def drawn(seed: int) -> list[tuple[WorkerId, ...]]:
        scorer = scorer_of("random", seed)
        return [scorer.best(four).workers for _ in range(2000)]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    counts = Counter(drawn(7))
    assert all(420 < counts[option.workers] < 580 for option in four)


def option(name: str, **facts: float) -> Option:
    zero = {"ttft_s": 0.0, "queued_s": 0.0, "tpot_s": 0.0, "headroom": 0.0, "work_s": 0.0}
    return Option(workers=(WorkerId(name),), **(zero | {"requests": 0, "chosen": 0} | facts))  # pyright: ignore


def best(policy: str, *options: Option) -> WorkerId:
    return scorer_of(policy, 0).best(options).workers[0]


def test_prefix_gated_takes_the_best_match_while_loads_are_similar() -> None:
    """SGLang's gate: 64 requests and 1.5 times apart, a match of more than 0.3."""
    matched, free = option("a", matched=0.9, requests=64), option("b", matched=0.2)
    assert best("prefix-gated", matched, free) == "a"
    assert best("prefix-gated", matched._replace(requests=65), free) == "b"
    busy = option("a", matched=0.9, requests=200), option("b", requests=135)
    assert best("prefix-gated", *busy) == "a"  # 65 apart, but not 1.5 times
    assert best("prefix-gated", option("a", matched=0.3, requests=1), option("b")) == "b"


def test_overlap_cost_weighs_what_is_computed_against_what_decodes() -> None:
    """Dynamo's cost up to 1.1: prefill blocks + decode blocks."""
    near = option("a", prefill_tokens=100, context_tokens=500)
    far = option("b", prefill_tokens=500, context_tokens=99)
    assert best("overlap-cost", near, far) == "b"
    assert best("overlap-cost", near, far._replace(context_tokens=101)) == "a"


def test_extra_work_counts_once_more_by_the_share_of_waiting() -> None:
    warm = option("a", ttft_s=1.3, queued_s=1.2, headroom=-0.3, effort=0.1)
    cold = option("b", ttft_s=1.2, queued_s=0.2, headroom=-0.2, effort=1.0)
    assert best("slo", warm, cold) == "a"
    idle = cold._replace(ttft_s=0.7, queued_s=0.0, headroom=0.3)
    assert best("slo", warm, idle) == "b", "sooner by more than it costs others"
    assert best("slo", warm, idle._replace(ttft_s=1.0, headroom=0.0)) == "a"
    shared = cold._replace(effort=0.1)  # by all who begin alike
    assert best("slo", warm._replace(headroom=-0.4), shared) == "b"


def test_an_unknown_policy_is_a_bug() -> None:
    with pytest.raises(BugError, match="no scorer named"):
        scorer_of("best", 0)
