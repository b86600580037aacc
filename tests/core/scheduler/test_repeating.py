"""How often a step may be run in a row, and what comes of it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_bench import SETUP, Bench, request

from antiphon.errors import BugError
from antiphon.testing.strategies import WorkerSetup
from antiphon.types import (
    DrawnRun,
    FinishReason,
    SequenceEnded,
    StepPlan,
    StepResult,
    TokensGenerated,
)

MOST = 8


def repeating(setup: WorkerSetup = SETUP, most: int = MOST) -> Bench:
    """A bench whose scheduler allows for runs."""
    return Bench(replace(setup, most_repeats=most))


def decoding(bench: Bench, *requests: object, steps: int = 2) -> StepPlan:
    """The first plan in which all of these decode, and have a token each."""
    bench.add(*requests)  # type: ignore[arg-type]
    for _ in range(steps - 1):
        bench.turn()
    return bench.step()


def test_no_more_steps_than_are_allowed() -> None:
    plan = decoding(repeating(), request(max_tokens=20))
    assert plan.repeat == MOST


def test_without_leave_each_step_is_one() -> None:
    assert decoding(repeating(most=1), request(max_tokens=20)).repeat == 1


def test_the_shortest_limit_ends_a_run() -> None:
    bench = repeating()
    plan = decoding(bench, request("a", max_tokens=20), request("b", (4, 5), max_tokens=6))
    assert plan.repeat == 5  # b has one token of six


def test_the_first_token_of_a_prompt_is_said_by_itself() -> None:
    bench = repeating()
    bench.add(request(prompt=(1,), max_tokens=9))
    assert bench.step().repeat == 1


def test_prompts_beside_decodes_are_computed_step_by_step() -> None:
    bench = repeating()
    bench.add(request("a", max_tokens=20))
    bench.turn()
    bench.add(request("b", (1, 2, 3, 4) * 5, max_tokens=5))
    assert bench.step().repeat == 1


def test_log_probabilities_are_said_step_by_step() -> None:
    assert decoding(repeating(), request(max_tokens=9, logprobs=0)).repeat == 1


def test_pages_for_all_of_a_run_are_there() -> None:
    bench = repeating()
    plan = decoding(bench, request(prompt=(1, 2, 3), max_tokens=20))
    (chunk,) = plan.chunks
    assert chunk.start == 3
    assert (chunk.page_start + len(chunk.new_pages)) * 2 >= chunk.start + MOST


def test_where_memory_is_short_a_run_is_as_long_as_there_is_room() -> None:
    bench = repeating(replace(SETUP, pages=4, max_model_len=8))
    plan = decoding(bench, request(prompt=(1, 2, 3), max_tokens=5))
    assert 1 <= plan.repeat <= 4
    assert bench.scheduler.view(0.0).held_pages <= 4


def result(plan: StepPlan, tokens: tuple[int, ...], **changes: object) -> StepResult:
    """All that decode draw the same."""
    runs = tuple(DrawnRun(one.request.id, one.sequence, tokens) for one in plan.chunks)
    facts: dict[str, object] = {"number": plan.number, "runs": runs, "elapsed_s": 0.4}
    return StepResult(**(facts | changes))  # type: ignore[arg-type]


def test_a_run_is_said_at_once_with_its_time() -> None:
    bench = repeating()
    plan = decoding(bench, request(max_tokens=20))
    (event,) = bench.scheduler.complete(plan, result(plan, (7, 8, 9, 7)), 1.0)
    assert isinstance(event, TokensGenerated)
    assert (event.index, event.tokens) == (1, (7, 8, 9, 7))
    assert event.seconds == pytest.approx(0.3)
    after = bench.step()
    assert (after.chunks[0].start, after.chunks[0].tokens, after.chunks[0].index) == (7, (7,), 5)


def test_steps_and_tokens_of_a_run_are_counted() -> None:
    bench = repeating()
    plan = decoding(bench, request("a", max_tokens=20), request("b", (4,), max_tokens=20))
    before = bench.scheduler.view(0.0)
    bench.scheduler.complete(plan, result(plan, (7, 8, 9)), 1.0)
    after = bench.scheduler.view(1.0)
    assert after.steps_total - before.steps_total == 2
    assert after.computed_tokens_total - before.computed_tokens_total == 4


def test_a_sequence_ends_with_the_last_token_of_a_run() -> None:
    bench = repeating()
    plan = decoding(bench, request(max_tokens=20, eos_token_ids=(5,)))
    events = bench.scheduler.complete(plan, result(plan, (7, 7, 5)), 1.0)
    assert [type(one) for one in events] == [TokensGenerated, SequenceEnded]
    assert events[-1].reason is FinishReason.STOP  # type: ignore[union-attr]
    assert bench.scheduler.view(1.0).held_pages == 0


def test_a_plan_that_may_be_repeated_may_be_run_once() -> None:
    bench = repeating()
    plan = decoding(bench, request(max_tokens=20))
    events = bench.scheduler.complete(plan, bench.engine.forward(plan), 0.0)
    assert [type(one).__name__ for one in events] == ["TokenGenerated"]


def test_who_was_aborted_in_the_midst_of_a_run_says_nothing() -> None:
    bench = repeating()
    one = request("a", max_tokens=20)
    plan = decoding(bench, one, request("b", (4,), max_tokens=20))
    bench.scheduler.abort(one.id, 0.5)
    events = bench.scheduler.complete(plan, result(plan, (7, 8)), 1.0)
    assert [event.request for event in events] == ["b"]


@pytest.mark.parametrize(
    ("tokens", "eos", "problem"),
    [
        ((7,) * 9, (), "was not to be run 9 times"),
        ((7, 5, 7), (5,), "went on after the end"),
    ],
)
def test_a_run_that_can_not_be_is_a_bug(
    tokens: tuple[int, ...], eos: tuple[int, ...], problem: str
) -> None:
    bench = repeating()
    plan = decoding(bench, request(max_tokens=20, eos_token_ids=eos))
    with pytest.raises(BugError, match=problem):
        bench.scheduler.complete(plan, result(plan, tokens), 1.0)


def test_a_run_that_leaves_somebody_out_is_a_bug() -> None:
    bench = repeating()
    plan = decoding(bench, request("a", max_tokens=20), request("b", (4,), max_tokens=20))
    short = replace(result(plan, (7, 7)), runs=result(plan, (7, 7)).runs[:1])
    with pytest.raises(BugError, match="left out b"):
        bench.scheduler.complete(plan, short, 1.0)


@given(
    prompts=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    outputs=st.lists(st.integers(2, 18), min_size=4, max_size=4),
    most=st.integers(2, 12),
)
@settings(deadline=None, max_examples=60)
def test_runs_come_to_the_tokens_of_single_steps(
    prompts: list[int], outputs: list[int], most: int
) -> None:
    def spoken(bench: Bench) -> dict[tuple[str, int], tuple[int, ...]]:
        said: dict[tuple[str, int], tuple[int, ...]] = {}
        for number, length in enumerate(prompts):
            prompt = tuple(1 + (number + place) % 9 for place in range(length))
            bench.add(request(f"r{number}", prompt, max_tokens=outputs[number]))
        while (plan := bench.scheduler.step(0.0)) is not None:
            passes = bench.engine.passes(plan)
            for event in bench.scheduler.complete(plan, bench.engine.forward(plan, passes), 0.0):
                if isinstance(event, TokensGenerated):
                    key = (event.request, event.sequence)
                    said[key] = said.get(key, ()) + event.tokens
                elif type(event).__name__ == "TokenGenerated":
                    key = (event.request, event.sequence)  # type: ignore[union-attr]
                    said[key] = (*said.get(key, ()), event.token)  # type: ignore[union-attr]
        assert bench.scheduler.view(0.0).held_pages == 0
        return said

    assert spoken(repeating(most=most)) == spoken(repeating(most=1))
