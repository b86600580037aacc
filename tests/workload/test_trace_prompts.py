"""Prompts of trace rows: they share text exactly where the rows share hash ids."""

from collections.abc import Sequence
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.text import Tokenizer
from antiphon.workload import TraceAsk, TraceRow, TraceScale, at_rate, thinned, trace_asks
from antiphon.workload.asks import WORDS
from antiphon.workload.trace_prompts import ID_WORDS, block_words

BLOCK = 512
SCALE = TraceScale(block_tokens=32)
ids = st.integers(0, 5) | st.integers(0, len(WORDS) ** ID_WORDS - 1)
seeds = st.integers(0, 2**40)


@st.composite
def rows(draw: st.DrawFn) -> TraceRow:
    """A row that keeps the rule of the public traces: a hash id for each block, begun ones too."""
    hash_ids = tuple(draw(st.lists(ids, min_size=1, max_size=8)))
    whole = (len(hash_ids) - 1) * BLOCK
    return TraceRow(
        at_s=draw(st.floats(0, 1e4)),
        input_tokens=whole + draw(st.integers(1, BLOCK)),
        output_tokens=draw(st.integers(0, 4000)),
        hash_ids=hash_ids,
    )


def only(row: TraceRow, seed: int = 0, scale: TraceScale = SCALE) -> TraceAsk:
    (ask,) = trace_asks([row], scale, seed=seed)
    return ask


def words_of(row: TraceRow, seed: int) -> list[str]:
    return only(row, seed).ask.text.split()


def common(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = zip(one, other, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


@settings(deadline=None, max_examples=200)
@given(rows(), rows(), seeds)
def test_prompts_share_text_exactly_as_far_as_their_ids(
    one: TraceRow, other: TraceRow, seed: int
) -> None:
    shared = common(one.hash_ids, other.hash_ids)
    first, second = words_of(one, seed), words_of(other, seed)
    same = common(first, second)
    if shared == min(len(one.hash_ids), len(other.hash_ids)):
        assert same == min(len(first), len(second))
        return
    # A shared id may be cut short in one of them: then they part where it ends.
    whole = min(shared * SCALE.block_tokens, len(first), len(second))
    assert whole <= same < whole + ID_WORDS


@settings(deadline=None)
@given(ids, ids, seeds)
def test_different_ids_differ_within_their_first_words(one: int, other: int, seed: int) -> None:
    first, second = (block_words(id, seed, ID_WORDS) for id in (one, other))
    assert (first == second) == (one == other)


@settings(deadline=None)
@given(ids, seeds, st.integers(0, 300), st.integers(0, 300))
def test_a_longer_run_begins_like_a_shorter_one(id: int, seed: int, a: int, b: int) -> None:
    short, long = sorted((a, b))
    words = block_words(id, seed, long)
    assert len(words) == long
    assert words[:short] == block_words(id, seed, short)


@settings(deadline=None)
@given(rows(), seeds)
def test_a_prompt_is_as_long_as_the_row_says(row: TraceRow, seed: int) -> None:
    ask = only(row, seed)
    assert ask.prompt_words == len(ask.ask.text.split())
    scaled = row.input_tokens * SCALE.block_tokens / BLOCK
    assert scaled <= ask.prompt_words < scaled + ID_WORDS
    assert 1 <= ask.ask.max_tokens <= SCALE.max_output_tokens


def test_a_seed_gives_other_words() -> None:
    runs = {tuple(block_words(3, seed, 64)) for seed in range(100)}
    assert len(runs) == 100


def test_these_are_the_words_on_every_machine() -> None:
    assert " ".join(block_words(17, 1, 12)) == FROZEN


FROZEN = "but place was other to get her was part do as who"


def test_every_word_is_one_token_of_smollm2() -> None:
    """So that lengths of a trace are lengths for the engine."""
    tokenizer = Tokenizer.load(open_checkpoint(resolve("smollm2-135m")).tokenizer)
    for word in WORDS:
        assert len(tokenizer.encode(f" {word}")) == 1, word
    row = TraceRow(at_s=0.0, input_tokens=4 * BLOCK, output_tokens=1, hash_ids=(0, 1, 2, 3))
    assert len(tokenizer.encode(only(row).ask.text)) == 4 * SCALE.block_tokens


def at(*times: float, tokens: int = BLOCK) -> list[TraceRow]:
    return [TraceRow(time, tokens, 16, tuple(range(-(-tokens // BLOCK)))) for time in times]


def times(asks: Sequence[TraceAsk]) -> list[float]:
    return [ask.at_s for ask in asks]


def test_long_rows_are_left_out_and_numbers_have_no_holes() -> None:
    scale = TraceScale(max_prompt_tokens=64)
    asks = list(trace_asks([*at(5, tokens=1025), *at(6, 8), *at(9, tokens=1024)], scale, seed=0))
    assert times(asks) == [0, 2, 3]
    assert [ask.ask.number for ask in asks] == [0, 1, 2]
    assert len(list(trace_asks(at(*range(9)), scale, seed=0, limit=4))) == 4


def test_prompts_of_rows_without_hash_ids_are_scaled_and_share_nothing() -> None:
    asks = list(trace_asks([TraceRow(0.0, 1600, 10)] * 50, SCALE, seed=0))
    assert {ask.prompt_words for ask in asks} == {100}
    assert all(len(ask.ask.text.split()) == 100 for ask in asks)
    assert len({tuple(ask.ask.text.split()[:4]) for ask in asks}) == 50


def test_arrivals_keep_their_pattern_at_another_rate() -> None:
    asks = list(trace_asks(at(0, 10, 40), SCALE, seed=0))
    assert times(at_rate(asks, 0.3)) == pytest.approx([0, 2.5, 10])
    assert times(at_rate(asks[:1], 5.0)) == [0]
    assert at_rate([], 5.0) == []


@settings(deadline=None)
@given(st.lists(rows(), max_size=30), st.floats(0, 1), seeds)
def test_thinning_takes_whole_conversations(
    all_rows: list[TraceRow], share: float, seed: int
) -> None:
    kept = list(thinned(all_rows, share, seed))
    begun = {row.hash_ids[:2] for row in kept}
    assert kept == [row for row in all_rows if row.hash_ids[:2] in begun]
    assert list(thinned(all_rows, 1.0, seed)) == all_rows
    assert not list(thinned(all_rows, 0.0, seed))


def test_thinning_takes_about_the_share_that_is_asked_for() -> None:
    everything = [TraceRow(0.0, 1024, 1, (0, number)) for number in range(2000)]
    assert 0.08 < len(list(thinned(everything, 0.1, 1))) / 2000 < 0.12


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_rates_that_make_no_sense_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        at_rate([], bad)


def test_ids_and_scales_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="hash id"):
        block_words(len(WORDS) ** ID_WORDS, 0, 1)
    with pytest.raises(ValueError, match="block_tokens"):
        TraceScale(block_tokens=ID_WORDS - 1)
    with pytest.raises(ValueError, match="output"):
        TraceScale(max_output_tokens=0)
