"""A split model is the whole model, by any of its parts; a part that is wrong is named."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from antiphon.checkpoint import open_checkpoint
from antiphon.checkpoint.gguf_file import read_gguf
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_gguf

Refusal = Callable[[Path], str]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `tiny.gguf`, whole, and the same model in three parts."""
    folder = tmp_path_factory.mktemp("parts")
    tensors = random_tensors(TINY_SPEC, seed=4)
    write_gguf(folder / "tiny.gguf", TINY_SPEC, tensors)
    write_gguf(folder / "tiny.gguf", TINY_SPEC, tensors, parts=3)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "parts")


def part(folder: Path, number: int, name: str = "tiny") -> Path:
    return folder / f"{name}-{number:05}-of-00003.gguf"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_part_is_the_whole_model(written: Path, number: int) -> None:
    whole, found = open_checkpoint(written / "tiny.gguf"), open_checkpoint(part(written, number))
    assert (found.name, found.spec) == ("tiny", whole.spec)
    assert replace(found.tokenizer, path=whole.path) == whole.tokenizer
    assert {n: t.raw.tobytes() for n, t in found.tensors.items()} == {
        n: t.raw.tobytes() for n, t in whole.tensors.items()
    }
    assert {t.path for t in found.tensors.values()} == {part(written, n) for n in (1, 2, 3)}
    assert found.identity == open_checkpoint(part(written, 1)).identity != whole.identity


def test_a_change_in_any_part_is_another_model(folder: Path) -> None:
    seen = {open_checkpoint(part(folder, 1)).identity}
    for number in (1, 2, 3):
        content = part(folder, number).read_bytes()
        part(folder, number).unlink()
        part(folder, number).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        seen.add(open_checkpoint(part(folder, 1)).identity)
    assert len(seen) == 4


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_missing_part_names_itself(folder: Path, missing: int, refusal: Refusal) -> None:
    part(folder, missing).unlink()
    line = refusal(part(folder, missing % 3 + 1))
    assert line.startswith(f"{part(folder, missing)}: this part of the model is missing")


def test_a_damaged_part_names_itself(folder: Path, refusal: Refusal) -> None:
    content = part(folder, 2).read_bytes()
    part(folder, 2).write_bytes(content[:-40])
    line = refusal(part(folder, 1))
    assert str(part(folder, 2)) in line
    assert "truncated?" in line


def test_parts_that_changed_their_names(folder: Path, refusal: Refusal) -> None:
    alone = part(folder, 2).rename(folder / "second.gguf")
    assert "is one of 3 parts, but isn't named NAME-00001-of-00003.gguf" in refusal(alone)
    part(folder, 1).rename(part(folder, 2))
    alone.rename(part(folder, 1))
    line = refusal(part(folder, 1))
    assert line.startswith(f"{part(folder, 1)}: 'split.no' is 1, must be 0")


def test_a_part_of_another_model(folder: Path, refusal: Refusal) -> None:
    """The second part comes from a model with as many tensors, but holds the first's again."""
    first = read_gguf(part(folder, 1))
    writer = gguf.GGUFWriter(part(folder, 2), "llama")
    writer.add_uint16("split.no", 1)
    writer.add_uint16("split.count", 3)
    name = next(iter(first.tensors))
    writer.add_tensor(name, np.zeros(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    line = refusal(part(folder, 1))
    assert line == f"{part(folder, 2)}: tensor {name!r}: is in {part(folder, 1).name} too"


def test_tensors_that_no_part_has(folder: Path, refusal: Refusal) -> None:
    count = len(read_gguf(part(folder, 3)).tensors)
    total = sum(len(read_gguf(part(folder, n)).tensors) for n in (1, 2, 3))
    writer = gguf.GGUFWriter(part(folder, 3), "llama")
    writer.add_uint16("split.no", 2)
    writer.add_uint16("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    line = refusal(part(folder, 1))
    assert f"'split.tensors.count' is {total}, must be {total - count}" in line
