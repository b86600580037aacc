"""A model in several files works; a file that is broken ends a command with one line about it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_gguf, write_hf_folder

TENSORS = random_tensors(TINY_SPEC, seed=6)
SHARD = "model-00002-of-00002.safetensors"


def cost(model: Path) -> Any:
    """`antiphon kv cost`, the quickest of the commands that open a model."""
    return CliRunner().invoke(app, ["kv", "cost", str(model), "--json"])


def gguf(folder: Path, **options: Any) -> Path:
    return write_gguf(folder / "tiny.gguf", TINY_SPEC, TENSORS, **options)


def hf(folder: Path) -> Path:
    return write_hf_folder(folder / "tiny", TINY_SPEC, TENSORS, shards=2)


def damaged(path: Path, change: Callable[[bytes], bytes]) -> Path:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(change(content))
    return path


@pytest.mark.parametrize("make", [hf, lambda folder: gguf(folder, parts=3)])
def test_several_files_are_one_model(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    result = cost(make(tmp_path))
    assert result.exit_code == 0, result.output


def a_part_is_missing(folder: Path) -> tuple[Path, str]:
    model = gguf(folder, parts=3)
    gone = folder / "tiny-00003-of-00003.gguf"
    gone.unlink()
    return model, f"{gone}: this part of the model is missing"


def a_folder_without_a_model(folder: Path) -> tuple[Path, str]:
    return folder, f"{folder}: no model folder: it needs config.json, tokenizer.json"


def an_unknown_storage_type(folder: Path) -> tuple[Path, str]:
    def change(content: bytes) -> bytes:
        name = b"token_embd.weight"
        at = content.index(name) + len(name) + 4 + 2 * 8  # behind the count of dimensions and two
        assert content[at] == 0  # F32
        return content[:at] + b"\x10" + content[at + 1 :]

    model = damaged(gguf(folder), change)
    return model, f"{model}: tensor 'token_embd.weight': storage type IQ2_XXS is not supported"


def a_missing_tensor(folder: Path) -> tuple[Path, str]:
    tensors = dict(TENSORS)
    del tensors["model.layers.1.mlp.down_proj.weight"]
    model = write_hf_folder(folder / "tiny", TINY_SPEC, tensors, shards=2)
    return model, f"{model}: tensor 'model.layers.1.mlp.down_proj.weight': is missing"


def a_truncated_file(folder: Path) -> tuple[Path, str]:
    model = damaged(gguf(folder), lambda content: content[:-999])
    return model, f"{model}: tensor '"


def a_truncated_shard(folder: Path) -> tuple[Path, str]:
    model = hf(folder)
    shard = damaged(model / SHARD, lambda content: content[:-7])
    return model, f"{shard}: not a whole safetensors file"


def a_missing_shard(folder: Path) -> tuple[Path, str]:
    model = hf(folder)
    (model / SHARD).unlink()
    return model, f"{model / SHARD}: this shard is missing"


def another_kind_of_file(folder: Path) -> tuple[Path, str]:
    model = damaged(gguf(folder), lambda content: b"PK\x03\x04" + content[4:])
    return model, f"{model}: not a GGUF file"


def an_unknown_pre_tokenizer(folder: Path) -> tuple[Path, str]:
    model = damaged(gguf(folder), lambda content: content.replace(b"smollm", b"klingo"))
    return model, f"{model}: 'tokenizer.ggml.pre' is 'klingo'"


@pytest.mark.parametrize(
    "case",
    [
        a_part_is_missing,
        an_unknown_storage_type,
        a_missing_tensor,
        a_truncated_file,
        a_truncated_shard,
        a_missing_shard,
        another_kind_of_file,
        a_folder_without_a_model,
    ],
)
def test_a_broken_model_is_one_line(
    tmp_path: Path, case: Callable[[Path], tuple[Path, str]]
) -> None:
    model, problem = case(tmp_path)
    result = cost(model)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith(f"antiphon: {problem}")
