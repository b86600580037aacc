"""DistServe's formulas for pure steps, bounds for mixed ones, pipelines that go round."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import chunk, decodes, plan

from antiphon.errors import UsageError
from antiphon.perf.published_times import DISTSERVE, PublishedStepTime, published_times

OPT_13B = published_times("opt-13b", 1)
tables = st.sampled_from(sorted(DISTSERVE)).map(DISTSERVE.__getitem__)
lengths = st.integers(2, 2000)
contexts = st.integers(1, 2000)


def test_a_prompt_takes_what_the_formula_says() -> None:
    expected_ms = 18.10 + 0.1019 * 512 + 7.12e-6 * 512**2
    assert OPT_13B.prefill_s(512) == pytest.approx(expected_ms / 1e3)
    assert OPT_13B.seconds(plan(chunk(0, 512))) == pytest.approx(expected_ms / 1e3)


def test_a_decode_step_takes_what_the_formula_says_in_both_regimes() -> None:
    small_ms = 19.93 + 6.27e-4 * (32 * 500 + 32) + 0.0385 * 32
    assert OPT_13B.decode_step_s(32, 32 * 500) == pytest.approx(small_ms / 1e3)
    large_ms = 7.17 + 5.80e-4 * (95 * 500 + 95) + 0.158 * 95
    assert OPT_13B.decode_step_s(95, 95 * 500) == pytest.approx(large_ms / 1e3)


@given(tables, st.lists(lengths, min_size=1, max_size=4), st.lists(contexts, min_size=1))
@settings(deadline=None, max_examples=100)
def test_a_mixed_step_takes_more_than_either_part_and_less_than_both(
    times: PublishedStepTime, prompts: list[int], others: list[int]
) -> None:
    first = plan(*(chunk(0, length) for length in prompts))
    second = decodes(others)
    both_s = times.seconds(plan(*first.chunks, *second.chunks))
    parts = times.seconds(first), times.seconds(second)
    assert max(parts) <= both_s <= sum(parts)


@given(tables, st.integers(1, 3), contexts, st.integers(1, 100), st.integers(1, 120))
@settings(deadline=None, max_examples=30)
def test_a_run_takes_as_long_as_its_passes(
    times: PublishedStepTime, pipeline: int, context: int, passes: int, sequences: int
) -> None:
    times = replace(times, pipeline=pipeline)
    step = decodes([context] * sequences)
    single = sum(times.seconds(decodes([context + more] * sequences)) for more in range(passes))
    assert times.repeated_s(step, passes) == pytest.approx(single)
    assert times.seconds(step) == pytest.approx(times.decode_step_s(sequences, context * sequences))


@given(tables, lengths, st.integers(0, 2000), st.integers(1, 90), st.integers(0, 10**5))
@settings(deadline=None, max_examples=100)
def test_more_never_takes_less_within_a_regime(
    times: PublishedStepTime, tokens: int, start: int, sequences: int, context: int
) -> None:
    assert times.prefill_s(tokens + 1, start) > times.prefill_s(tokens, start)
    assert times.prefill_s(tokens, start + 1) > times.prefill_s(tokens, start)
    step_s = times.decode_step_s(sequences, context)
    assert times.decode_step_s(sequences + 1, context) > step_s
    assert times.decode_step_s(sequences, context + 1) > step_s


def test_where_the_regimes_meet_the_published_lines_do_not() -> None:
    """OPT-13B on one A100: a step of 95 sequences is said to be 6 % shorter than one of 94."""
    ratio = OPT_13B.decode_step_s(95, 95 * 500) / OPT_13B.decode_step_s(94, 94 * 500)
    assert ratio == pytest.approx(0.94, abs=0.005)


def test_nothing_takes_no_time() -> None:
    for times in (OPT_13B, published_times("opt-13b", 1, 2)):
        assert times.seconds(plan()) == times.prefill_s(0) == times.decode_step_s(0, 0) == 0.0


# ── pipelines ────────────────────────────────────────────────────────────────────────────────────


def test_prompts_follow_each_other_and_decodes_go_round() -> None:
    """A stage takes its share and a millisecond; batches of a decode step are disjoint."""
    two = published_times("opt-13b", 1, 2)
    prompt = plan(chunk(0, 512))
    assert two.seconds(prompt) == pytest.approx(OPT_13B.seconds(prompt) / 2 + 1e-3)
    assert two.lag_s(prompt) == two.seconds(prompt)
    assert two.prefill_s(512) == pytest.approx(OPT_13B.prefill_s(512) + 2e-3)
    assert two.occupied_s(512) == two.seconds(prompt)
    step = decodes([500] * 64)
    assert two.seconds(step) == pytest.approx(OPT_13B.seconds(decodes([500] * 32)) + 2e-3)
    assert two.lag_s(step) == OPT_13B.lag_s(prompt) == 0.0
    alone = decodes([500])
    assert two.seconds(alone) == pytest.approx(OPT_13B.seconds(alone) + 2e-3)


def test_how_much_fits_is_known_of_one_stage_only() -> None:
    assert OPT_13B.kv_tokens == 66_144
    two = published_times("opt-13b", 1, 2)
    assert (two.name, two.kv_tokens) == ("opt-13b on a100 TP1 PP2", None)


@pytest.mark.parametrize(
    ("model", "tensor", "said"),
    [
        ("opt-13", 1, r"did you mean opt-13b\? Known are opt-13b TP1, .*opt-66b TP2"),
        ("opt-13b", 8, r"no times of opt-13b TP8 on A100 are published\. Known are"),
        ("llama-3-8b", 1, "no times of llama-3-8b"),
    ],
)
def test_what_was_not_published_is_refused_with_what_was(
    model: str, tensor: int, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        published_times(model, tensor)


def test_a_pipeline_has_stages() -> None:
    with pytest.raises(UsageError, match="pipeline: is 0, but must be at least 1"):
        published_times("opt-13b", 1, 0)
