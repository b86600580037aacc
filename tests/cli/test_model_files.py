"""A model in several files works; a file that is broken ends a command with one line about it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_gguf, write_hf_folder

TENSORS = random_tensors(TINY_SPEC, seed=6)
SHARD = "model-00002-of-00002.safetensors"
STORED = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K"


def inspect(model: Path) -> Any:
    return CliRunner().invoke(app, ["models", "inspect", str(model), "--json"])


def gguf(folder: Path, **options: Any) -> Path:
    return write_gguf(folder / "tiny.gguf", TINY_SPEC, TENSORS, **options)


def hf(folder: Path) -> Path:
    return write_hf_folder(folder / "tiny", TINY_SPEC, TENSORS, shards=2)


def damaged(path: Path, change: Callable[[bytes], bytes]) -> Path:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(change(content))
    return path


def test_several_files_are_one_model(tmp_path: Path) -> None:
    """Two shards, or a GGUF file in three parts: all that is said of one file, but for its path."""
    one = write_hf_folder(tmp_path / "one", TINY_SPEC, TENSORS)
    found = [inspect(path) for path in (hf(tmp_path), gguf(tmp_path, parts=3), one)]
    assert [result.exit_code for result in found] == [0, 0, 0], found
    sharded, split, whole = (json.loads(result.stdout) for result in found)
    for told in (sharded, split):
        assert told["parameters"] == whole["parameters"] == sum(map(_size, TENSORS.values()))
        assert {row["class"]: row["bytes"] for row in told["tensors"]} == {
            row["class"]: row["bytes"] for row in whole["tensors"]
        }
    assert sharded["identity"] != split["identity"]


def _size(array: Any) -> int:
    return array.size


def a_part_is_missing(folder: Path) -> tuple[Path, str]:
    model = gguf(folder, parts=3)
    gone = folder / "tiny-00003-of-00003.gguf"
    gone.unlink()
    return model, f"{gone}: this part of the model is missing; 3 parts belong into one folder"


def a_folder_without_a_model(folder: Path) -> tuple[Path, str]:
    needs = "config.json, tokenizer.json and *.safetensors; of GGUF models name the file"
    return folder, f"{folder}: no model folder: it needs {needs}"


def an_unknown_storage_type(folder: Path) -> tuple[Path, str]:
    def change(content: bytes) -> bytes:
        name = b"token_embd.weight"
        at = content.index(name) + len(name) + 4 + 2 * 8  # behind the count of dimensions and two
        assert content[at] == 0  # F32
        return content[:at] + b"\x10" + content[at + 1 :]

    model = damaged(gguf(folder), change)
    return model, (
        f"{model}: tensor 'token_embd.weight': storage type IQ2_XXS is not supported; "
        f"supported: {STORED}"
    )


def a_missing_tensor(folder: Path) -> tuple[Path, str]:
    tensors = dict(TENSORS)
    del tensors["model.layers.1.mlp.down_proj.weight"]
    model = write_hf_folder(folder / "tiny", TINY_SPEC, tensors, shards=2)
    return model, f"{model}: tensor 'model.layers.1.mlp.down_proj.weight': is missing"


def a_missing_tensor_in_gguf(folder: Path) -> tuple[Path, str]:
    tensors = dict(TENSORS)
    del tensors["model.layers.1.mlp.down_proj.weight"]
    model = write_gguf(folder / "tiny.gguf", TINY_SPEC, tensors)
    return model, f"{model}: tensor 'blk.1.ffn_down.weight': is missing"


def an_unknown_rope_type(folder: Path) -> tuple[Path, str]:
    config = hf(folder) / "config.json"
    changed = json.loads(config.read_text())
    changed["rope_parameters"] = {"rope_type": "ntk", "rope_theta": 1e4, "factor": 2.0}
    config.write_text(json.dumps(changed))
    return config.parent, (
        f"{config}: RoPE scaling 'ntk' is not supported; "
        "supported: default, linear, llama3, yarn, longrope"
    )


def an_unknown_rope_type_in_gguf(folder: Path) -> tuple[Path, str]:
    tiny = gguf(folder)
    key, kind = b"llama.rope.scaling.type", b"dynm"
    entry = len(key).to_bytes(8, "little") + key + (8).to_bytes(4, "little")  # 8: a string
    entry += len(kind).to_bytes(8, "little") + kind

    def change(content: bytes) -> bytes:
        """One more metadata entry at the end of them is a shift of all that follows; before."""
        count = int.from_bytes(content[16:24], "little")
        head = content[:16] + (count + 1).to_bytes(8, "little")
        return head + entry + content[24:]

    model = damaged(tiny, change)
    return model, (
        f"{model}: RoPE scaling 'dynm' is not supported; supported: none, linear, yarn, longrope"
    )


def a_truncated_file(folder: Path) -> tuple[Path, str]:
    model = damaged(gguf(folder), lambda content: content[:-999])
    size = model.stat().st_size
    return model, f"{model}: tensor 'output.weight': ends at byte …of a file of {size}: truncated?"


def a_truncated_shard(folder: Path) -> tuple[Path, str]:
    model = hf(folder)
    shard = damaged(model / SHARD, lambda content: content[:-7])
    return model, f"{shard}: not a whole safetensors file (…): truncated or damaged?"


def a_missing_shard(folder: Path) -> tuple[Path, str]:
    model = hf(folder)
    (model / SHARD).unlink()
    return model, f"{model / SHARD}: this shard is missing"


def another_kind_of_file(folder: Path) -> tuple[Path, str]:
    model = damaged(gguf(folder), lambda content: b"PK\x03\x04" + content[4:])
    return model, f"{model}: not a GGUF file: it doesn't start with 'GGUF'"


def an_unknown_pre_tokenizer(folder: Path) -> tuple[Path, str]:
    model = damaged(gguf(folder), lambda content: content.replace(b"smollm", b"klingo"))
    return model, f"{model}: tokenizer.ggml.pre 'klingo' is not supported (known: …)"


@pytest.mark.parametrize(
    "case",
    [
        a_part_is_missing,
        an_unknown_storage_type,
        a_missing_tensor,
        a_missing_tensor_in_gguf,
        an_unknown_rope_type,
        an_unknown_rope_type_in_gguf,
        a_truncated_file,
        a_truncated_shard,
        a_missing_shard,
        another_kind_of_file,
        a_folder_without_a_model,
        an_unknown_pre_tokenizer,
    ],
)
def test_a_broken_model_is_one_line(
    tmp_path: Path, case: Callable[[Path], tuple[Path, str]]
) -> None:
    """`…` stands for what a library or the file's sizes say."""
    model, problem = case(tmp_path)
    result = inspect(model)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    before, dots, after = f"antiphon: {problem}".partition("…")
    assert line.startswith(before)
    assert line.endswith(after)
    assert dots or line == before
