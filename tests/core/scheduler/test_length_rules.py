"""The three rules of admission: what each reckons with, and what follows for memory."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_bench import SETUP, request
from scheduler_bench import Bench as ScriptedBench

from antiphon.core.scheduler.history import History
from antiphon.core.scheduler.length_rules import length_rule
from antiphon.errors import BugError
from antiphon.sim import ScriptedEngine, ShadowKv
from antiphon.testing.strategies import WorkerSetup


def history(*lengths: int) -> History:
    made = History(size=100, quantile=0.5)
    for length in lengths:
        made.finished(length)
    return made


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 500), max_size=20), st.integers(0, 600), st.integers(1, 600))
def test_aggressive_reckons_with_least_and_conservative_with_most(
    lengths: list[int], generated: int, cap: int
) -> None:
    past = history(*lengths)
    least, middle, most = (
        length_rule(name, past)(generated, cap)
        for name in ("aggressive", "past-future", "conservative")
    )
    assert generated < least <= middle <= most


def test_past_future_goes_by_what_ended() -> None:
    past = history(10, 20, 30, 40)
    assert length_rule("past-future", past)(0, 1000) == 30
    assert length_rule("past-future", past)(30, 1000) == 40
    assert length_rule("conservative", past)(30, 1000) == 1000
    assert length_rule("aggressive", past)(30, 1000) == 31


def test_there_are_no_others() -> None:
    with pytest.raises(BugError, match="no admission rule"):
        length_rule("hopeful", history())


def preemptions(admission: str, sizes: list[tuple[int, int, int]], pages: int = 12) -> int:
    """Of requests with such prompts, limits and answers, on a worker with little memory."""
    config = replace(SETUP.config, admission=admission)
    bench = Bench(replace(SETUP, config=config, pages=pages))
    for number, (prompt, limit, answer) in enumerate(sizes):
        tokens = tuple(range(1 + number, 1 + number + prompt))
        one = request(f"r{number}", tokens, max_tokens=limit, eos_token_ids=(0,))
        bench.add(one)
        bench.answers[one.id] = answer
    bench.finish()
    view = bench.scheduler.view(0.0)
    assert view.held_pages == 0
    return view.preemptions_total


class Bench(ScriptedBench):
    """Whose answers end after so many tokens, whatever their limit."""

    def __init__(self, setup: WorkerSetup) -> None:
        super().__init__(setup)
        self.answers: dict[str, int] = {}
        self.engine = ScriptedEngine(
            lambda one, sequence, index: 0 if index + 1 >= self.answers[one.id] else 9,
            shadow=ShadowKv(setup.kv.page_tokens),
        )


sizes = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=8
)


@settings(deadline=None, max_examples=60)
@given(sizes)
def test_nobody_is_thrown_out_where_limits_are_reckoned_with(
    requests: list[tuple[int, int, int]],
) -> None:
    assert preemptions("conservative", requests) == 0


def test_whoever_reckons_with_no_growth_throws_out() -> None:
    """The control of the law above."""
    assert preemptions("aggressive", [(4, 12, 12)] * 6) > 0
