"""Scorers: a total order, similar options take turns, chance is a function of the seed."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.router import Option, scorer_of
from antiphon.errors import BugError
from antiphon.types import WorkerId

POLICIES = ["slo", "random", "round-robin", "least-loaded"]


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


def test_an_unknown_policy_is_a_bug() -> None:
    with pytest.raises(BugError, match="no scorer named"):
        scorer_of("best", 0)
