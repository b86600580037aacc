"""Profiles: what the fit promises, and files that are read strictly."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from antiphon.errors import UsageError
from antiphon.store.codec import (
    KvProfile,
    Moments,
    Part,
    decode,
    encode,
    encode_kv_profile,
    entropy,
    find_flaw,
    fit_levels,
    peek_kv_profile,
    read_kv_profile,
    transform_of,
    write_kv_profile,
)
from antiphon.store.codec.block_shape import BlockShape
from antiphon.store.codec.rows import read_rows, rotation, write_rows
from codec_kit import BITS, block_of, floats, profile


def mixing(chance: np.random.Generator, size: int) -> np.ndarray:
    """Directions of sizes 1/4 … 4: products in float32 still have all of them."""
    directions, _ = np.linalg.qr(chance.normal(size=(size, size)))
    return directions * 2.0 ** chance.uniform(-2, 2, (1, size))


def moments_of(seed: int, size: int = 12) -> tuple[Moments, np.ndarray]:
    chance = np.random.default_rng(seed)
    vectors = chance.normal(size=(400, size)) @ mixing(chance, size) + 5
    slopes = chance.normal(size=(400, size)) @ mixing(chance, size)
    sums = Moments.none(size)
    for part in range(0, 400, 100):
        ends = slice(part, part + 100)
        sums.add(vectors[ends].astype(np.float32), slopes[ends].astype(np.float32), 2)
    return sums, vectors


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=20)
def test_coefficients_are_uncorrelated_and_an_error_in_any_costs_the_same(seed: int) -> None:
    sums, vectors = moments_of(seed)
    one = transform_of(sums, floor=0.0)
    assert one.forward @ one.inverse == pytest.approx(np.eye(12), abs=1e-2)
    coefficients = (vectors - one.mean) @ one.forward.T
    assert coefficients.T @ coefficients / 400 == pytest.approx(
        np.diag(one.spread**2), abs=1e-3 * float(one.spread[0]) ** 2
    )
    assert (np.diff(one.spread) <= 0).all()
    # eᵀ·M·e of an error of one coefficient is the square of it
    curvature = sums.curvature / 400
    costs = one.inverse.T @ curvature @ one.inverse
    assert costs == pytest.approx(np.eye(12), abs=2e-2)


def test_levels_take_the_bits_that_were_asked_for() -> None:
    assert [level.bits_per_element for level in profile().levels] == pytest.approx(BITS, rel=0.06)
    steps = [level.step for level in profile().levels]
    assert steps == sorted(steps)
    assert find_flaw(profile()) is None


def test_a_level_of_what_is_all_alike_is_still_one() -> None:
    sums = Moments.none(32)
    sums.add(np.zeros((10, 32), np.float32), np.zeros((10, 32), np.float32), 1)
    transforms = (transform_of(sums),) * 2
    parts = (Part(0, 0, 1), Part(1, 0, 1))
    [level] = fit_levels([2.0], transforms, parts, [[np.zeros((10, 32), np.float32)]] * 2, 0.6)
    assert not any(mine.any() for mine in level.classes)


@given(st.integers(0, 1000), st.integers(0, 2**20), st.booleans())
@settings(deadline=None, max_examples=30)
def test_rotation_is_undone(seed: int, start: int, half: bool) -> None:
    block = block_of(seed, start=start, half=half)
    shape, turn = BlockShape.of(block), rotation(profile().frequencies, start, 64)
    found = np.zeros_like(block)
    for part in profile().parts():
        write_rows(read_rows(block, shape, part, turn), found, shape, part, turn)
    if half:  # a rounding, and hardly ever
        assert (found != block).mean() < 0.02
    error = np.abs(floats(found) - floats(block))
    assert (error <= np.abs(floats(block)) * (2.0**-7 if half else 1e-5) + 2e-5).all()


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "new" / "made-up.kvprofile"
    write_kv_profile(profile(), path)
    again = read_kv_profile(path)
    assert again.id == profile().id
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    block = block_of(3)
    data = encode(block, entropy(2), profile=profile())
    assert data == encode(block, entropy(2), profile=again)
    found = np.zeros_like(block)
    assert decode(data or b"", found, profile=again) is None


Tensors = dict[str, np.ndarray]


def changed(path: Path, tensors: Tensors | None = None, /, **said: object) -> None:
    """The file with other tensors, or other words in its metadata."""
    with safe_open(path, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        words = json.loads(file.metadata()["antiphon"])
    save_file(arrays | (tensors or {}), path, {"antiphon": json.dumps(words | said)})


def reshaped(array: np.ndarray) -> list[np.ndarray]:
    """The same numbers, or nearly all of them, as what a kernel must never see."""
    return [
        array.reshape(1, *array.shape),
        array.reshape(*array.shape, 1),
        array.reshape(-1)[:1].reshape(()),
        np.concatenate([array, array]),
        array.astype(np.float64),
        array.astype(np.int16),
    ]


def tensors_of(made: KvProfile) -> Tensors:
    """One of each kind."""
    first, level = made.transforms[0], made.levels[0]
    names = ("forward", "inverse", "mean", "spread", "following")
    return {
        "frequencies": made.frequencies,
        **{f"transform.0.{name}": getattr(first, name) for name in names},
        "level.1.frequencies": level.frequencies,
        "level.1.shift": level.shift,
        "level.1.classes.0": level.classes[0],
        "level.1.low_bits.0": level.low_bits[0],
    }


@pytest.mark.parametrize("name", tensors_of(profile()))
def test_a_tensor_of_another_shape_or_type_is_refused(tmp_path: Path, name: str) -> None:
    """Kernels index without looking: (1, 64) in place of (64,) is memory of somebody else."""
    path = tmp_path / "made-up.kvprofile"
    for other in reshaped(tensors_of(profile())[name]):
        write_kv_profile(profile(), path)
        changed(path, {name: other})
        with pytest.raises(UsageError, match=r"made-up\.kvprofile: .*(float|int16|channel|class)"):
            read_kv_profile(path)


def with_row(row: int, symbol: int) -> np.ndarray:
    """Distributions in which one class has no such symbol, and another the more often."""
    found = profile().levels[0].frequencies.copy()
    found[row, 126] += found[row, symbol]
    found[row, symbol] = 0
    return found


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"frequencies": np.tile(profile().levels[0].frequencies[:1], (300, 1))}, "256 classes"),
        ({"frequencies": profile().levels[0].frequencies[-7:]}, "256 classes"),
        ({"frequencies": with_row(0, 127)}, "not kept"),
        ({"frequencies": with_row(5, 127)}, "no symbol for 0"),
        ({"frequencies": with_row(5, 255)}, "for escapes"),
        ({"classes": (np.full(64, 56, np.uint8),) * 4}, "can't have"),
        ({"step": 1e-300}, "step"),
        ({"step": float("nan")}, "step"),
    ],
)
def test_a_level_that_could_not_encode_is_refused(other: dict[str, Any], told: str) -> None:
    first, *rest = profile().levels
    made = replace(profile(), levels=(replace(first, **other), *rest), coders={})
    assert told in (find_flaw(made) or "")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"version": 1}, "version 1"),
        ({"format": "other"}, "format"),
        ({"layers": 0}, "layers is 0"),
        ({"layers": 4}, "transform 2 is not of 64 channels"),
        ({"kept_tokens": True}, "kept_tokens is True"),
        ({"rounding": 7.0}, "rounding"),
        ({"levels": []}, "levels"),
        ({"id": "00"}, "damaged"),
        ({"identity": "00"}, "damaged"),
        ({"digest": "00"}, "damaged"),
        ({"rounding": 0.75}, "damaged"),
        ({"model": "another"}, "damaged"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    tmp_path: Path, said: dict[str, object], told: str
) -> None:
    path = tmp_path / "made-up.kvprofile"
    write_kv_profile(profile(), path)
    changed(path, **said)
    with pytest.raises(UsageError, match=told):
        read_kv_profile(path)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_damage_is_a_refusal(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("profile") / "made-up.kvprofile"
    write_kv_profile(profile(), path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        place = data.draw(st.integers(0, 4000) | st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        found: KvProfile | None = read_kv_profile(path)
    except UsageError as error:
        assert str(path) in str(error)
        return
    # A change of how it is written, such as a tab in place of a blank: it says the same.
    assert found is not None
    assert encode_kv_profile(found) == encode_kv_profile(profile())


def test_damage_of_any_tensor_is_seen(tmp_path: Path) -> None:
    """Of those too that only encoding needs, and which no id of a block is of."""
    path = tmp_path / "made-up.kvprofile"
    for name, array in tensors_of(profile()).items():
        write_kv_profile(profile(), path)
        other = array.copy()
        other.reshape(-1).view(np.uint8)[0] ^= 1  # of the last bit: still possible everywhere
        changed(path, {name: other})
        with pytest.raises(UsageError, match=r"damaged|class|add up"):
            read_kv_profile(path)


@pytest.mark.parametrize("read", [peek_kv_profile, read_kv_profile])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no.kvprofile", "there is no such file: `antiphon kv profile MODEL -o FILE` makes one"),
        (".", "is a folder: name the file that `antiphon kv profile` wrote"),
        ("times.json", "is no profile of a model's KV"),
        ("weights.safetensors", r"its tensors are something else's\): `antiphon kv profile MODEL"),
        ("newer.kvprofile", "version 99; here it is 'antiphon-kv-profile', 2"),
    ],
)
def test_what_is_no_profile_is_named_with_the_remedy(
    tmp_path: Path, read: Callable[[Path], object], name: str, told: str
) -> None:
    (tmp_path / "times.json").write_text(json.dumps({"format": "antiphon-profile"}))
    some = {"weights": np.zeros(3, np.float32)}
    save_file(some, tmp_path / "weights.safetensors")
    words = json.dumps({"format": "antiphon-kv-profile", "version": 99})
    save_file(some, tmp_path / "newer.kvprofile", {"antiphon": words})
    with pytest.raises(UsageError, match=told) as raised:
        read(tmp_path / name)
    assert str(raised.value).startswith(f"{tmp_path / name}: ")


def test_the_id_covers_what_decoding_depends_on() -> None:
    one = profile()
    level = one.levels[0]
    others = [
        replace(one, identity=b"another"),
        replace(one, kept_tokens=2),
        replace(one, frequencies=one.frequencies * 2),
        replace(one, levels=one.levels[1:]),
        replace(one, levels=(replace(level, step=level.step * 2), *one.levels[1:])),
        replace(one, levels=(replace(level, shift=level.shift + 1), *one.levels[1:])),
    ]
    assert len({other.id for other in (one, *others)}) == 1 + len(others)
