"""When a prompt is computed where its answer is decoded: laws of conditional disaggregation."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from router_kit import info, report, request, router

from antiphon.types import Hold, Role


def split_or_not(queue: int, tokens: int, running: int, *, conditional: bool = True) -> str:
    made = router(info("p", Role.PREFILL), info("d", Role.DECODE), conditional_split=conditional)
    report(made, "p", waiting=1, waiting_tokens=queue)
    report(made, "d", running=running, running_sequences=running, context_tokens=500 * running)
    answer = made.choose(request("r", tokens), 0.0)
    return "hold" if isinstance(answer, Hold) else "split" if answer.prefill else "local"  # pyright: ignore


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 4000), st.integers(0, 40))
def test_more_queue_at_prefill_never_brings_a_prompt_back_to_it(tokens: int, running: int) -> None:
    steps = [split_or_not(queue, tokens, running) for queue in range(0, 12_000, 500)]
    assert ("local", "split") not in pairwise(steps)


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 4000), st.integers(0, 12_000))
def test_more_decodes_never_bring_a_prompt_to_decode(tokens: int, queue: int) -> None:
    steps = [split_or_not(queue, tokens, running) for running in range(0, 90, 4)]
    assert ("split", "local") not in pairwise(steps)


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 4000), st.integers(0, 12_000), st.integers(0, 90))
def test_an_unconditional_split_never_brings_a_prompt_to_decode(
    tokens: int, queue: int, running: int
) -> None:
    assert split_or_not(queue, tokens, running, conditional=False) != "local"
