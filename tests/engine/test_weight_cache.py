"""The cache gives what was stored, or nothing: never damaged, never half a file."""

import logging
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.checkpoint import Checkpoint, StorageType, open_checkpoint
from antiphon.engine import weight_cache
from antiphon.engine.weight_cache import CachedTensor, WeightCache
from antiphon.engine.weights import load_weights
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_gguf


def wanted(seed: int = 0) -> list[CachedTensor]:
    chance = torch.Generator().manual_seed(seed)
    shapes = {"a": (3, 5), "b": (7,), "c": (2, 3, 4)}
    values = {name: torch.randn(shape, generator=chance) for name, shape in shapes.items()}

    def tensor(name: str) -> CachedTensor:
        return CachedTensor(name=name, shape=shapes[name], values=lambda: values[name])

    return [tensor(name) for name in shapes]


def same(found: dict[str, torch.Tensor] | None, tensors: list[CachedTensor]) -> bool:
    return found is not None and all(
        torch.equal(found[tensor.name], tensor.values()) for tensor in tensors
    )


@pytest.fixture
def cache(tmp_path: Path) -> WeightCache:
    return WeightCache(tmp_path / "weights")


def only_file(tmp_path: Path) -> Path:
    [path] = (tmp_path / "weights").iterdir()
    return path


def test_absent_then_stored(cache: WeightCache, tmp_path: Path) -> None:
    assert cache.load("m", wanted()) is None
    cache.store("m", wanted())
    assert same(cache.load("m", wanted()), wanted())
    assert only_file(tmp_path).name == "m-r1.safetensors"


def test_loading_computes_nothing(cache: WeightCache) -> None:
    cache.store("m", wanted())

    def compute() -> torch.Tensor:
        raise AssertionError("computed again")

    lazy = [CachedTensor(name=t.name, shape=t.shape, values=compute) for t in wanted()]
    assert same(cache.load("m", lazy), wanted())


def test_another_revision_is_never_read(
    cache: WeightCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store("m", wanted())
    monkeypatch.setattr(weight_cache, "_REVISION", 2)
    assert cache.load("m", wanted()) is None


@pytest.mark.parametrize("change", ["name", "shape", "more", "fewer"])
def test_other_tensors_are_a_miss(cache: WeightCache, change: str) -> None:
    cache.store("m", wanted())
    a, b, c = wanted()
    other = {
        "name": [CachedTensor(name="z", shape=a.shape, values=a.values), b, c],
        "shape": [CachedTensor(name="a", shape=(5, 3), values=a.values), b, c],
        "more": [a, b, c, CachedTensor(name="z", shape=a.shape, values=a.values)],
        "fewer": [a, b],
    }[change]
    assert cache.load("m", other) is None


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damage_is_a_miss(cache: WeightCache, tmp_path: Path, data: st.DataObject) -> None:
    shutil.rmtree(tmp_path / "weights", ignore_errors=True)
    cache.store("m", wanted())
    path = only_file(tmp_path)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[place:]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path.unlink()
    path.write_bytes(content)
    found = cache.load("m", wanted())
    assert found is None or same(found, wanted())


def test_most_recently_used_files_stay(cache: WeightCache, tmp_path: Path) -> None:
    for number in range(6):
        cache.store(f"m{number}", wanted())
        path = tmp_path / "weights" / f"m{number}-r1.safetensors"
        os.utime(path, (1000 + number, 1000 + number))
        if number == 3:
            assert cache.load("m0", wanted()) is not None
    kept = {path.name.split("-")[0] for path in (tmp_path / "weights").iterdir()}
    assert kept == {"m0", "m3", "m4", "m5"}


def test_abandoned_temporary_files_go(cache: WeightCache, tmp_path: Path) -> None:
    cache.store("m", wanted())
    old, new = tmp_path / "weights/old.partial", tmp_path / "weights/new.partial"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (1000, 1000))
    cache.store("n", wanted())
    assert (old.exists(), new.exists()) == (False, True)


def test_a_failing_writer_leaves_nothing(cache: WeightCache, tmp_path: Path) -> None:
    def fail() -> torch.Tensor:
        raise KeyboardInterrupt

    broken = [*wanted()[:2], CachedTensor(name="c", shape=(2, 3, 4), values=fail)]
    with pytest.raises(KeyboardInterrupt):
        cache.store("m", broken)
    assert list((tmp_path / "weights").iterdir()) == []


def test_a_full_disk_is_refused_before_writing(
    cache: WeightCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_cache, "_SPARE_BYTES", 2**62)
    with pytest.raises(OSError, match="are needed"):
        cache.store("m", wanted())
    assert list((tmp_path / "weights").iterdir()) == []


def test_concurrent_starts(cache: WeightCache) -> None:
    def start(number: int) -> bool:
        found = cache.load("m", wanted())
        if found is None:
            cache.store("m", wanted())
            found = cache.load("m", wanted())
        return same(found, wanted())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(start, range(64)))


def test_a_mapped_file_may_be_replaced_and_deleted(cache: WeightCache, tmp_path: Path) -> None:
    cache.store("m", wanted())
    found = cache.load("m", wanted())
    cache.store("m", wanted(seed=1))
    shutil.rmtree(tmp_path / "weights")
    assert same(found, wanted())


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    tensors = random_tensors(TINY_SPEC, seed=3)
    path = tmp_path / "a.gguf"
    return open_checkpoint(write_gguf(path, TINY_SPEC, tensors, storage=StorageType.Q8_0))


@pytest.fixture
def unusable(tmp_path: Path) -> Iterator[Path]:
    """A place where no folder can be made, even by root."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    yield path / "cache"


def test_unusable_folder_degrades_to_no_cache(
    checkpoint: Checkpoint, unusable: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = load_weights(checkpoint, cache_dir=unusable)
    expected = load_weights(checkpoint, cache_dir=None)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    [record] = caplog.records
    assert record.getMessage().startswith("converted weights are not cached")
    assert str(unusable) in record.getMessage()


def test_damaged_cache_is_rebuilt(
    checkpoint: Checkpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache_dir = tmp_path / "cache"
    expected = load_weights(checkpoint, cache_dir=cache_dir)
    [path] = (cache_dir / "weights").iterdir()
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with caplog.at_level(logging.WARNING):
        found = load_weights(checkpoint, cache_dir=cache_dir)
    assert [r.getMessage().endswith("made anew") for r in caplog.records] == [True]
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert path.read_bytes() == content


def test_of_several_that_start_at_once_one_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for it and map what it made: counted where values are computed."""
    tensors = random_tensors(TINY_SPEC, seed=3)
    path = write_gguf(tmp_path / "m.gguf", TINY_SPEC, tensors, storage=StorageType.Q8_0)
    stored: list[str] = []
    store = WeightCache.store

    def counted(cache: WeightCache, name: str, wanted: list[CachedTensor]) -> None:
        stored.append(name)
        store(cache, name, wanted)

    monkeypatch.setattr(WeightCache, "store", counted)

    def load() -> dict[str, torch.Tensor]:
        return load_weights(open_checkpoint(path), cache_dir=tmp_path / "cache")

    with ThreadPoolExecutor(4) as pool:
        loaded = [future.result() for future in [pool.submit(load) for _ in range(4)]]
    assert len(stored) == 1
    for other in loaded[1:]:
        assert all(torch.equal(other[name], loaded[0][name]) for name in loaded[0])
