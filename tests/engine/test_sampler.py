"""What is drawn: laws, statistics with fixed seeds, and each knob at its limits."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.chance import uniform
from antiphon.engine.sampler import Draw, filtered, largest, sample
from antiphon.errors import BugError
from antiphon.types import Request, RequestId, Sample, SamplingParams, SequenceFault

EOS = 3
FROZEN = (0.9589881231493929, 0.04279855377983932, 0.17086948112874167)


def draw_of(
    *, row: int = 0, sequence: int = 0, outputs: tuple[int, ...] = (), prompt=(1,), **params: Any
) -> Draw:
    request = Request(
        id=RequestId("r"),
        prompt=prompt,
        sampling=SamplingParams(**{"seed": 7, "max_tokens": 100} | params),
        eos_token_ids=(EOS,),
    )
    return Draw(request=request, sequence=sequence, index=len(outputs), row=row, outputs=outputs)


def token_of(logits: Any, draw: Draw) -> int:
    [result] = sample(np.array([logits], np.float32), [draw])
    assert isinstance(result, Sample)
    return result.token


def tokens_of(logits: Any, count: int, **params: Any) -> Counter[int]:
    """Draws for `count` different seeds."""
    draws = [draw_of(**params | {"seed": seed}) for seed in range(count)]
    results = sample(np.array([logits], np.float32), draws)
    return Counter(result.token for result in results if isinstance(result, Sample))


# Chance


def test_the_generator_is_frozen() -> None:
    """A failover to another version must continue the same sequence."""
    assert uniform(0, 0, 0) == FROZEN[0]
    assert uniform(2**63 - 1, 5, 1000) == FROZEN[1]
    assert uniform(-1, 0, 0) == FROZEN[2]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 1000), st.integers(0, 10**6))
def test_chance_lies_in_the_unit_interval(seed: int, sequence: int, index: int) -> None:
    assert 0 <= uniform(seed, sequence, index) < 1


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def chi_square_bound(degrees: int) -> float:
    """About the 99.9th percentile (Wilson and Hilferty's approximation)."""
    share = 2 / (9 * degrees)
    return degrees * (1 - share + 3.09 * math.sqrt(share)) ** 3


@pytest.mark.parametrize("vary", ["seed", "sequence", "index"])
def test_chance_is_uniform_along_each_counter(vary: str) -> None:
    at = {"seed": 1, "sequence": 0, "index": 0}
    draws = [uniform(**at | {vary: number}) for number in range(20_000)]
    counts = np.histogram(draws, bins=50, range=(0, 1))[0]
    assert chi_square(counts, np.full(50, 400.0)) < chi_square_bound(49)
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.03


# The distribution


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_follow_the_softmax(temperature: float) -> None:
    logits = np.linspace(-2, 2, 12)
    counts = tokens_of(logits, 20_000, temperature=temperature)
    expected = softmax(logits / temperature) * 20_000
    found = np.array([counts[token] for token in range(12)])
    assert chi_square(found, expected) < chi_square_bound(11)


def test_filtered_tokens_follow_the_renormalised_softmax() -> None:
    logits = np.array([0.0, 3.0, 1.0, 2.0, -1.0])
    counts = tokens_of(logits, 10_000, top_k=3)
    assert set(counts) == {1, 2, 3}
    expected = softmax(logits[[1, 2, 3]]) * 10_000
    found = np.array([counts[token] for token in (1, 2, 3)])
    assert chi_square(found, expected) < chi_square_bound(2)


LOGITS = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40)


@settings(deadline=None)
@given(
    LOGITS,
    st.floats(0.01, 5),
    st.integers(0, 50),
    st.floats(0.001, 1),
    st.floats(0, 1),
    st.integers(0, 2**63 - 1),
)
def test_filters_keep_what_they_promise(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    values = np.array(logits, np.float32).astype(np.float64)
    scaled = (values - values.max()) / temperature
    params = SamplingParams(top_k=top_k, top_p=top_p, min_p=min_p)
    kept = filtered(scaled, params)
    assert len(kept) > 0
    assert (np.diff(kept) > 0).all()
    assert scaled.argmax() in kept
    # Nothing that was dropped is likelier than something that was kept.
    dropped = np.setdiff1d(np.arange(len(scaled)), kept)
    assert not len(dropped) or scaled[dropped].max() <= scaled[kept].min()
    assert not top_k or len(kept) <= top_k
    if min_p:
        assert (scaled[kept] >= np.log(min_p)).all()
    token = token_of(
        logits,
        draw_of(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed),
    )
    assert token in kept


@settings(deadline=None)
@given(LOGITS, st.floats(0.001, 0.999))
def test_the_nucleus_is_the_smallest_set(logits: list[float], top_p: float) -> None:
    scaled = np.array(logits) - max(logits)
    kept = filtered(scaled, SamplingParams(top_p=top_p))
    shares = np.sort(softmax(scaled)[kept])
    assert shares.sum() >= top_p - 1e-9
    assert shares[1:].sum() < top_p + 1e-9


def test_a_wide_nucleus_looks_past_the_first_few() -> None:
    scaled = np.zeros(5000)
    assert len(filtered(scaled, SamplingParams(top_p=0.5))) == 2500
    assert len(filtered(scaled, SamplingParams(top_p=0.01))) == 50


def test_of_equal_tokens_the_lower_ids_are_kept() -> None:
    scaled = np.array([0.0, -1, 0, -1, 0, -1])
    assert filtered(scaled, SamplingParams(top_k=2)).tolist() == [0, 2]
    assert filtered(scaled, SamplingParams(top_k=4)).tolist() == [0, 1, 2, 4]


def test_min_p_is_a_share_of_the_likeliest() -> None:
    scaled = np.log([1.0, 0.5, 0.25, 0.2])
    assert filtered(scaled, SamplingParams(min_p=0.24)).tolist() == [0, 1, 2]
    assert filtered(scaled, SamplingParams(min_p=1.0)).tolist() == [0]


@given(LOGITS, st.integers(1, 60))
def test_largest_is_the_head_of_the_sorted_list(values: list[float], count: int) -> None:
    expected = sorted(range(len(values)), key=lambda index: (-values[index], index))[:count]
    assert largest(np.array(values), count).tolist() == expected


# Independence


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 5), st.integers(0, 2**32), st.integers(0, 3), st.integers(0, 50))
def test_a_draw_depends_on_its_own_counters_alone(
    row: int, seed: int, sequence: int, index: int
) -> None:
    logits = np.random.default_rng(1).normal(size=(6, 200)).astype(np.float32)
    outputs = tuple(range(index))
    one = draw_of(row=row, seed=seed, sequence=sequence, outputs=outputs, logprobs=2)
    others = [draw_of(row=n, temperature=n % 2, seed=n) for n in range(6)]
    alone = sample(
        logits[row : row + 1], [draw_of(seed=seed, sequence=sequence, outputs=outputs, logprobs=2)]
    )
    assert sample(logits, [*others, one, *others])[6] == alone[0]


def test_sequences_of_one_request_differ() -> None:
    draws = [draw_of(sequence=sequence) for sequence in range(8)]
    results = sample(np.zeros((1, 10_000), np.float32), draws)
    assert len({result.token for result in results if isinstance(result, Sample)}) == 8


def test_an_unresolved_seed_is_a_bug() -> None:
    with pytest.raises(BugError, match="seed"):
        token_of([0.0, 1.0], draw_of(seed=None))


# Greedy


def test_greedy_takes_the_likeliest_and_of_equals_the_lowest() -> None:
    assert token_of([1.0, 5.0, 5.0, 2.0], draw_of(temperature=0)) == 1
    assert token_of([1.0, 5.0, 5.0, 2.0], draw_of(temperature=0, logprobs=0)) == 1


def test_a_tiny_temperature_is_greedy() -> None:
    logits = [1.0, 5.0, 4.999, 2.0]
    assert set(tokens_of(logits, 200, temperature=1e-6)) == {1}
    assert set(tokens_of(logits, 20, temperature=5e-324)) == {1}


def test_a_high_temperature_is_uniform() -> None:
    assert len(tokens_of(np.linspace(-20, 20, 10), 500, temperature=1e9)) == 10


# Adjustments


def test_logit_bias_bans_and_forces() -> None:
    logits = [0.0, 3.0, 1.0]
    assert token_of(logits, draw_of(temperature=0, logit_bias=((1, -100.0),))) == 2
    assert token_of(logits, draw_of(temperature=0, logit_bias=((0, 100.0), (9, 5.0)))) == 0


def test_ending_is_banned_until_min_tokens() -> None:
    logits = [0.0, 1.0, 8.0, 9.0]
    params: dict[str, Any] = {"temperature": 0, "min_tokens": 2, "stop_token_ids": (2, 999)}
    assert token_of(logits, draw_of(**params)) == 1
    assert token_of(logits, draw_of(outputs=(5,), **params)) == 1
    assert token_of(logits, draw_of(outputs=(5, 6), **params)) == EOS


def test_min_tokens_without_any_ender_changes_nothing() -> None:
    request = Request(
        id=RequestId("r"),
        prompt=(1,),
        sampling=SamplingParams(temperature=0, min_tokens=4, seed=1, max_tokens=9),
    )
    draw = Draw(request=request, sequence=0, index=0, row=0, outputs=())
    assert token_of([0.0, 2.0], draw) == 1


def test_presence_and_frequency_count_outputs_only() -> None:
    logits = [4.0, 3.9, 3.0]
    prompt = (0, 0, 0)
    assert token_of(logits, draw_of(temperature=0, prompt=prompt, presence_penalty=2.0)) == 0
    once = draw_of(temperature=0, prompt=prompt, outputs=(0,), presence_penalty=0.2)
    assert token_of(logits, once) == 1
    counted = {"temperature": 0, "frequency_penalty": 0.5, "prompt": prompt}
    assert token_of(logits, draw_of(outputs=(0, 1, 1), **counted)) == 0
    assert token_of(logits, draw_of(outputs=(0, 0, 1, 1, 1), **counted)) == 0
    assert token_of(logits, draw_of(outputs=(0, 0, 0, 1, 1, 1), **counted)) == 2


def test_repetition_counts_prompt_and_outputs_and_heeds_the_sign() -> None:
    params: dict[str, Any] = {"temperature": 0, "repetition_penalty": 2.0}
    assert token_of([4.0, 3.0, 0.0], draw_of(prompt=(0,), **params)) == 1
    assert token_of([4.0, 3.0, 0.0], draw_of(prompt=(2,), outputs=(0,), **params)) == 1
    assert token_of([-4.0, -3.0, -5.0], draw_of(prompt=(1,), **params)) == 0


# Log-probabilities


def test_log_probabilities_are_those_of_the_raw_logits() -> None:
    logits = np.random.default_rng(3).normal(size=100).astype(np.float32)
    draw = draw_of(
        temperature=0.3, top_k=2, logprobs=5, logit_bias=((7, 50.0),), presence_penalty=1.0
    )
    [result] = sample(logits[None], [draw])
    assert isinstance(result, Sample)
    assert result.logprobs is not None
    expected = np.log(softmax(logits.astype(np.float64)))
    assert result.token == 7
    assert result.logprobs.chosen == pytest.approx(expected[7])
    best = np.argsort(-logits)[:5]
    assert [token for token, _ in result.logprobs.top] == best.tolist()
    assert [value for _, value in result.logprobs.top] == pytest.approx(expected[best])


def test_only_the_chosen_one_and_none_at_all() -> None:
    logits = np.zeros((1, 4), np.float32)
    [chosen, none] = sample(logits, [draw_of(logprobs=0), draw_of()])
    assert isinstance(chosen, Sample)
    assert isinstance(none, Sample)
    assert chosen.logprobs is not None
    assert chosen.logprobs.top == ()
    assert chosen.logprobs.chosen == pytest.approx(math.log(0.25))
    assert none.logprobs is None


# Faults


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_fault_their_own_sequence(
    bad: float, temperature: float
) -> None:
    logits = np.zeros((3, 50), np.float32)
    logits[1, 17] = bad
    results = sample(logits, [draw_of(row=row, temperature=temperature) for row in range(3)])
    assert [type(result) for result in results] == [Sample, SequenceFault, Sample]
    assert isinstance(results[1], SequenceFault)
    assert "not finite" in results[1].message


def test_when_nothing_may_be_drawn_it_is_a_fault() -> None:
    [result] = sample(np.zeros((1, 2), np.float32), [draw_of(min_tokens=1, stop_token_ids=(0, 1))])
    assert isinstance(result, SequenceFault)
    assert "no token" in result.message
