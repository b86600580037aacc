"""Range coding: any symbols come back, sizes are what entropy says, damage is seen."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from antiphon.errors import BugError
from antiphon.store.codec import lane_words
from antiphon.store.codec.rans import (
    LANES,
    STATE_BYTES,
    SYMBOLS,
    TOTAL,
    Distributions,
    decode,
    encode,
)

FEW = settings(deadline=None, max_examples=60)


def spread(weights: np.ndarray) -> np.ndarray:
    """Frequencies that add up, at least 1 for each weight above 0."""
    parts = np.where(weights > 0, np.maximum(weights / weights.sum() * TOTAL, 1).astype(int), 0)
    parts[np.argmax(parts)] += TOTAL - parts.sum()
    return parts.astype(np.uint16)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, Distributions]:
    """Symbols, classes of columns, tables: flat, steep, of one symbol only."""
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    steepness = draw(st.lists(st.floats(0.0, 8.0), min_size=1, max_size=5))
    rows = []
    for each in steepness:
        used = chance.integers(1, SYMBOLS + 1)
        weights = np.zeros(SYMBOLS)
        places = chance.permutation(SYMBOLS)[:used]
        weights[places] = chance.random(used) ** each + 1e-9
        rows.append(spread(weights))
    tables = Distributions(np.stack(rows))
    columns = LANES * draw(st.integers(0, 4))
    tokens = draw(st.integers(0, 70))
    classes = chance.integers(0, len(rows), columns).astype(np.uint8)
    symbols = np.empty((tokens, columns), np.uint8)
    for column, klass in enumerate(classes):
        share = rows[klass] / TOTAL
        symbols[:, column] = chance.choice(SYMBOLS, tokens, p=share)
    return symbols, classes, tables


@given(drawn())
@FEW
def test_symbols_come_back(case: tuple[np.ndarray, np.ndarray, Distributions]) -> None:
    symbols, classes, tables = case
    found = np.full_like(symbols, 99)
    assert decode(encode(symbols, classes, tables), classes, tables, found)
    assert (found == symbols).all()


def normal_case() -> tuple[np.ndarray, np.ndarray, Distributions]:
    chance = np.random.default_rng(1)
    weights = np.exp(-(((np.arange(SYMBOLS) - 127) / 6.0) ** 2) / 2)
    tables = Distributions(spread(np.where(weights > 1e-4, weights, 0))[None])
    share = tables.frequencies[0] / TOTAL
    symbols = chance.choice(SYMBOLS, (64, 10 * LANES), p=share).astype(np.uint8)
    return symbols, np.zeros(10 * LANES, np.uint8), tables


def test_a_stream_takes_what_its_symbols_are_worth() -> None:
    symbols, classes, tables = normal_case()
    wanted = tables.bits(0, np.bincount(symbols.ravel(), minlength=SYMBOLS)) / 8
    size = len(encode(symbols, classes, tables)) - STATE_BYTES
    assert wanted - STATE_BYTES <= size <= wanted * 1.001 + STATE_BYTES


def test_one_certain_symbol_takes_nothing() -> None:
    frequencies = np.zeros((1, SYMBOLS), np.uint16)
    frequencies[0, 127] = TOTAL
    tables, classes = Distributions(frequencies), np.zeros(LANES, np.uint8)
    symbols = np.full((64, LANES), 127, np.uint8)
    assert len(encode(symbols, classes, tables)) == STATE_BYTES
    symbols[3, 3] = 128
    with pytest.raises(BugError, match="no frequency"):
        encode(symbols, classes, tables)


@given(st.binary(max_size=4000), st.booleans())
@FEW
def test_any_bytes_are_refused_within_bounds(stream: bytes, long: bool) -> None:
    _, classes, tables = normal_case()
    room = np.full((66, len(classes)), 7, np.uint8)
    assert not decode(stream * (20 if long else 1), classes, tables, room[1:-1])
    assert (room[0] == 7).all()
    assert (room[-1] == 7).all()


@given(st.data())
@FEW
def test_no_single_change_goes_unseen(data: st.DataObject) -> None:
    symbols, classes, tables = normal_case()
    stream = bytearray(encode(symbols, classes, tables))
    match data.draw(st.sampled_from(("flip", "cut", "longer"))):
        case "flip":
            place = data.draw(st.integers(0, len(stream) - 1))
            stream[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            del stream[data.draw(st.integers(0, len(stream) - 1)) :]
        case "longer":
            stream += data.draw(st.binary(min_size=1, max_size=8))
    found = np.empty_like(symbols)
    # The stream's own checks are 32 states; what happens to fit them all is not the same stream.
    assert not decode(bytes(stream), classes, tables, found)


def test_frequencies_must_add_up() -> None:
    with pytest.raises(ValueError, match="4096"):
        Distributions(np.ones((1, SYMBOLS), np.uint16))
    symbols, classes, tables = normal_case()
    with pytest.raises(BugError, match="lanes"):
        encode(symbols[:, 1:], classes[1:], tables)


def flushing(move: Any) -> Any:
    return njit(lambda states, frequencies, words: move(states, frequencies, words, 0))


def refilling(move: Any) -> Any:
    return njit(lambda states, words: move(states, words, 0))


FLUSHES = [flushing(move) for move in (lane_words._flush_each, lane_words.flush)]
REFILLS = [refilling(move) for move in (lane_words._refill_each, lane_words.refill)]


@given(st.integers(0, 2**32), st.floats(0.0, 1.0))
@FEW
def test_lanes_done_together_are_as_if_done_one_by_one(seed: int, share: float) -> None:
    """And what was given to a stream comes back from its end."""
    chance = np.random.default_rng(seed)
    frequencies = chance.integers(1, TOTAL, LANES)
    few, many = (
        chance.integers(1 << 16, frequencies << 20),
        chance.integers(1 << 16, 1 << 32, LANES),
    )
    before = np.where(chance.random(LANES) < share, many, few).astype(np.uint32)
    found = []
    for flush in FLUSHES:
        states, words = before.copy(), np.zeros(LANES + lane_words.SPARE_WORDS, np.uint16)
        count = flush(states, frequencies.astype(np.uint32), words)
        found.append((count, states.tobytes(), words[:count].tobytes()))
    assert found[0] == found[1]
    assert count == np.count_nonzero(before >= frequencies << 20)
    stream = np.concatenate([words[:count][::-1], np.full(LANES, 9, np.uint16)])
    for refill in REFILLS:
        back = states.copy()
        assert refill(back, stream) == count
        assert (back == before).all()
