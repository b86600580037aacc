"""Blocks through every level: exact ones stay so, errors are bounded, nothing else is written."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.kv import BlockKeys
from antiphon.errors import BugError, UsageError
from antiphon.store.codec import (
    INT4,
    INT8,
    LOSSLESS,
    RAW,
    DecodeProblem,
    Level,
    decode,
    encode,
    entropy,
    parse_level,
    read_blob,
)
from antiphon.store.codec.blob import _HEADER, HEADER_BYTES, Blob
from antiphon.store.codec.block_shape import BlockShape
from antiphon.store.codec.entropy_coder import MOST_SKIPPED
from antiphon.store.codec.rows import read_rows, rotation, write_rows
from codec_kit import BITS, EXACT, LEVELS, block_of, floats, profile, profile_for

VECTORS = Path(__file__).parent / "codec_vectors.json"
FEW = settings(deadline=None, max_examples=40)
levels = st.sampled_from(LEVELS)


def through(block: np.ndarray, level: Level, start: int = 0) -> tuple[np.ndarray, bytes]:
    """The block decoded, between guards that must stay as they are."""
    data = encode(block, level, start=start, profile=profile_for(level))
    assert data is not None
    room = np.full((len(block) + 2, *block.shape[1:]), 77, block.dtype)
    assert decode(data, room[1:-1], profile=profile_for(level)) is None
    assert (room[[0, -1]] == 77).all()
    return room[1:-1].copy(), data


@given(levels, st.integers(0, 10**6), st.integers(0, 100), st.booleans())
@FEW
def test_blocks_come_back(level: Level, seed: int, start: int, half: bool) -> None:
    pages, page_tokens = [(4, 16), (1, 64), (5, 3), (64, 1)][seed % 4]
    block = block_of(seed, pages, page_tokens, start, half=half)
    found, data = through(block, level, start)
    if level in EXACT:
        assert found.tobytes() == block.tobytes()
    error = floats(found) - floats(block)
    assert np.sqrt((error**2).mean()) < {INT8: 0.02, INT4: 0.3}.get(level, 0.8)
    blob = read_blob(data)
    assert not isinstance(blob, DecodeProblem)
    assert (blob.level, blob.start) == (level, start)


@given(st.sampled_from((RAW, LOSSLESS)), st.integers(0, 2**32), st.sampled_from(("f", "H")))
@FEW
def test_exact_levels_keep_every_bit_of_anything(level: Level, seed: int, kind: str) -> None:
    chance = np.random.default_rng(seed)
    sides = (2, 1, 2, 1, 3, 2 * int(chance.integers(1, 9)))
    bits = chance.integers(0, 2**32, sides, np.uint64)
    block = bits.astype(np.uint16) if kind == "H" else bits.astype(np.uint32).view(np.float32)
    found, _ = through(block, level)
    assert found.tobytes() == block.tobytes()


@given(st.sampled_from((INT8, INT4)), st.integers(0, 2**32), st.booleans(), st.floats(-30, 30))
@FEW
def test_integers_are_within_a_step(level: Level, seed: int, half: bool, scale: float) -> None:
    block = floats(block_of(seed, half=False)) * np.float32(10.0**scale)
    block = block.astype(np.float32)
    if half:
        block = (block.view(np.uint32) >> 16).astype(np.uint16)
    found, exact = floats(through(block, level)[0]), floats(block)
    top = 255 if level == INT8 else 15
    # keys: a range a channel over all tokens, values: a range a token over its channels
    for side, axes in ((0, (0, 3)), (1, (4,))):
        wide = exact[:, :, side]
        least, most = wide.min(axes, keepdims=True), wide.max(axes, keepdims=True)
        # A range is rounded outwards, by its ends' own last bits; what is decoded is rounded again.
        wider = np.maximum(np.abs(least), np.abs(most)) * 2.0**-6
        bound = (most - least + wider) / top * 0.51
        bound = bound + np.abs(wide) * (2.0**-8 if half else 2.0**-20) + 1e-30
        assert (np.abs(found[:, :, side] - wide) <= bound).all()


def test_each_level_is_smaller_and_worse_than_the_one_before() -> None:
    block = block_of(5, start=640)
    sizes, errors = [], []
    for level in LEVELS:
        found, data = through(block, level, 640)
        blob = read_blob(data)
        assert isinstance(blob, Blob)
        sizes.append(8 * len(blob.payload) / block.size)
        errors.append(float(((floats(found) - floats(block)) ** 2).mean()))
    assert sizes[:4] == sorted(sizes[:4], reverse=True)
    assert errors[2] < errors[3]
    assert errors[4:] == sorted(errors[4:])
    # The coder's states are 1 bit an element of a block this small; the rest is what was asked for.
    own = [size - 2 * 128 * 8 / block.size for size in sizes[4:]]
    assert own == pytest.approx(BITS, rel=0.15)


def test_first_tokens_are_kept_as_they_are() -> None:
    block = block_of(6)
    found, _ = through(block, entropy(3))
    assert (found[0, :, :, :, 0] == block[0, :, :, :, 0]).all()
    later, _ = through(block_of(6, start=1), entropy(3), 1)
    assert (later[0, :, :, :, 0] != block_of(6, start=1)[0, :, :, :, 0]).any()


def moved(block: np.ndarray, number: int, vector: np.ndarray) -> np.ndarray:
    """A copy of a float32 block of position 64 on, `vector` added to part `number` of token 35."""
    part = list(profile().parts())[number]
    shape, turn = BlockShape.of(block), rotation(profile().frequencies, 64, 64)
    rows, found = read_rows(block, shape, part, turn), block.copy()
    rows[35] += vector.astype(np.float32)
    write_rows(rows, found, shape, part, turn)
    return found


def errors_in_steps(block: np.ndarray, found: np.ndarray, number: int, level: Level) -> np.ndarray:
    """Coefficients of the difference in part `number`, and which of them the level keeps."""
    part, made = list(profile().parts())[number], profile().levels[level.number - 1]
    shape, turn = BlockShape.of(block), rotation(profile().frequencies, 64, 64)
    rows, again = (read_rows(one, shape, part, turn) for one in (block, found))
    return (again - rows).astype(np.float64) @ profile().transforms[number].forward.T / made.step


@given(
    st.sampled_from(LEVELS[4:]),
    st.integers(0, 2**32),
    st.integers(0, 3),
    st.floats(-1.0, 5.0),
    st.booleans(),
)
@FEW
def test_whatever_is_encoded_is_within_the_error_of_its_level(
    level: Level, seed: int, number: int, size: float, one_direction: bool
) -> None:
    """Outliers in any direction, of any size: kept within a step, or not encoded at all."""
    chance = np.random.default_rng(seed)
    inverse = profile().transforms[number].inverse.astype(np.float64)
    weights = chance.normal(size=inverse.shape[1])
    if one_direction:
        weights *= np.arange(len(weights)) == chance.integers(len(weights))
    step = profile().levels[level.number - 1].step
    block = moved(block_of(7, start=64, half=False), number, 10**size * step * inverse @ weights)
    data = encode(block, level, start=64, profile=profile())
    if data is None:
        assert 10**size * np.abs(weights).max() > 1
        return
    found = np.empty_like(block)
    assert decode(data, found, profile=profile()) is None
    errors = errors_in_steps(block, found, number, level)
    kept = profile().levels[level.number - 1].classes[number] != 0
    rounding = 1e-4 * 10**size * np.linalg.norm(weights)  # of float32, in turning and products
    assert np.abs(errors[:, kept]).max(initial=0) <= 1 + rounding
    assert np.linalg.norm(errors[:, ~kept], axis=1).max() <= MOST_SKIPPED * 1.01 + rounding


def test_what_no_table_foresaw_comes_back_too_or_is_not_encoded() -> None:
    block, level = block_of(7, start=64, half=False), entropy(3)
    usual = encode(block, level, start=64, profile=profile())
    made, one = profile().levels[2], profile().transforms[0]
    assert made.classes[0][0] != 0
    assert made.classes[0][-1] == 0
    first, last = 1000 * made.step * one.inverse[:, [0, -1]].T
    data = encode(moved(block, 0, first), level, start=64, profile=profile())
    longer, shorter = read_blob(data or b""), read_blob(usual or b"")
    assert isinstance(longer, Blob)
    assert isinstance(shorter, Blob)
    assert len(longer.payload) > len(shorter.payload)
    assert encode(moved(block, 0, last), level, start=64, profile=profile()) is None


@given(levels, st.sampled_from((np.nan, np.inf, -np.inf)), st.integers(0, 6143))
@FEW
def test_what_is_not_finite_is_kept_exactly_or_refused(
    level: Level, odd: float, place: int
) -> None:
    block = block_of(8, start=1, half=False)
    block.reshape(-1)[place] = odd
    data = encode(block, level, start=1, profile=profile_for(level))
    assert (data is not None) == (level in EXACT)


# ── damage ───────────────────────────────────────────────────────────────────────────────────────


@given(st.data(), levels)
@FEW
def test_damage_is_refused_within_bounds(data: st.DataObject, level: Level) -> None:
    block = block_of(9)
    coded = bytearray(encode(block, level, profile=profile_for(level)) or b"")
    match data.draw(st.sampled_from(("flip", "cut", "longer"))):
        case "flip":
            place = data.draw(st.integers(0, len(coded) - 1))
            coded[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            del coded[data.draw(st.integers(0, len(coded) - 1)) :]
        case "longer":
            coded += data.draw(st.binary(min_size=1, max_size=200))
    room = np.full((6, *block.shape[1:]), 77, block.dtype)
    assert isinstance(decode(coded, room[1:-1], profile=profile()), DecodeProblem)
    assert (room[[0, -1]] == 77).all()


@given(st.data(), levels)
@settings(deadline=None, max_examples=150)
def test_a_checksum_that_was_made_on_purpose_helps_nobody(
    data: st.DataObject, level: Level
) -> None:
    """Fields and payload changed, checksum taken anew: decoded or refused, but within bounds."""
    block = block_of(9)
    blob = read_blob(encode(block, level, profile=profile_for(level)) or b"")
    assert isinstance(blob, Blob)
    payload = bytearray(blob.payload)
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(payload) - 1) | st.integers(0, 40))
        payload[place] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del payload[data.draw(st.integers(0, len(payload) - 1)) :]
    forged = Blob(
        level=data.draw(st.sampled_from((level, *LEVELS))),
        shape=blob.shape,
        start=data.draw(st.sampled_from((0, 1, 2**31 - 1))),
        payload=bytes(payload),
        profile=blob.profile,
        kept_tokens=data.draw(st.sampled_from((blob.kept_tokens, 0, 64))),
    ).encoded()
    room = np.full((6, *block.shape[1:]), 77, block.dtype)
    decode(forged, room[1:-1], profile=profile())
    assert (room[[0, -1]] == 77).all()


@given(st.binary(max_size=1000), st.booleans())
@FEW
def test_any_bytes_are_refused(data: bytes, begins_well: bool) -> None:
    if begins_well:
        data = b"antiphKC\x01\x00" + data
    assert isinstance(decode(data, block_of(1)), DecodeProblem)


def test_problems_say_what_is_wrong() -> None:
    block = block_of(1)
    data = encode(block, entropy(1), profile=profile()) or b""
    assert decode(data, block) is DecodeProblem.PROFILE
    assert decode(data, block, profile=profile(200)) is DecodeProblem.PROFILE
    assert decode(data, block_of(1, half=False), profile=profile()) is DecodeProblem.SHAPE
    assert decode(data, block_of(1, pages=8), profile=profile()) is DecodeProblem.SHAPE
    assert decode(data[:100], block) is DecodeProblem.SHORT
    assert decode(b"x" + data[1:], block) is DecodeProblem.MAGIC
    assert decode(data[:8] + b"\x02" + data[9:], block) is DecodeProblem.VERSION
    assert decode(data[:-1] + b"x", block) is DecodeProblem.CHECKSUM
    with pytest.raises(BugError, match="no block"):
        decode(data, block[0])
    with pytest.raises(BugError, match="needs a profile"):
        encode(block, entropy(9), profile=profile())


def test_a_block_that_claims_to_be_huge_takes_no_memory() -> None:
    data = bytearray(encode(block_of(1), INT8) or b"")
    struct.pack_into("<5H", data, 14, *[65534] * 5)
    assert _HEADER.size == HEADER_BYTES
    assert isinstance(read_blob(bytes(data)), DecodeProblem)


def test_a_side_that_no_header_can_say_is_no_block() -> None:
    for sides in ((65536, 1, 2, 1, 1, 2), (1, 1, 2, 1, 1, 65536), (0, 1, 2, 1, 1, 2)):
        with pytest.raises(BugError, match="above 65535"):
            encode(np.zeros(sides, np.uint16), RAW)


# ── names, lineage, frozen bytes ─────────────────────────────────────────────────────────────────


def test_lossy_kv_never_answers_an_exact_look_up() -> None:
    ids = {profile().id, profile(200).id}
    assert len(ids) == 2
    lineages = [level.lineage(id_) for level in LEVELS for id_ in sorted(ids)]
    keys = {
        BlockKeys(identity=b"m", numerics="n", lineage=lineage).key(None, range(64))
        for lineage in lineages
    }
    assert {level.lineage(b"") for level in EXACT} == {b""}
    # one exact key, int8, int4, and three levels of each profile
    assert len(keys) == 1 + 2 + 3 * 2


def test_names() -> None:
    assert [parse_level(level.name) for level in LEVELS] == list(LEVELS)
    for name in ("", "int2", "entropy-0", "entropy-17", "entropy-01", "Raw"):
        with pytest.raises(UsageError, match="entropy-1"):
            parse_level(name)


@pytest.mark.parametrize("name", ["raw", "lossless", "int8", "int4"])
def test_frozen_bytes_are_read_as_ever(name: str) -> None:
    """Written by the first version. Compressors may write others; readers must read these."""
    vector = json.loads(VECTORS.read_text())[name]
    found = np.zeros((1, 1, 2, 1, 8, 8), np.uint16)
    assert decode(bytes.fromhex(vector["data"]), found) is None
    assert found.tobytes().hex() == vector["block"]
