"""`antiphon models inspect`, `check` and `moefy` as a person meets them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.checkpoint import StorageType, open_checkpoint, resolve
from antiphon.cli.app import app
from antiphon.cli.models_inspect import as_text, count_text, describe
from antiphon.engine import KvMemory, layout_of
from antiphon.errors import UsageError
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_gguf, write_hf_folder


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["models", *map(str, arguments)])


def answer(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    spec = replace(TINY_SPEC, intermediate=96)
    return write_gguf(
        tmp_path / "tiny.gguf", spec, random_tensors(spec, 3), storage=StorageType.Q8_0
    )


@pytest.mark.parametrize("name", FAMILY_SPECS)
def test_what_is_told_adds_up(name: str, tmp_path: Path) -> None:
    spec = FAMILY_SPECS[name]
    tensors = random_tensors(spec, 1)
    checkpoint = open_checkpoint(write_hf_folder(tmp_path / "model", spec, tensors))
    told = describe(checkpoint, 10**8)
    assert told["parameters"] == sum(array.size for array in tensors.values())
    assert told["parameters"] == sum(row["parameters"] for row in told["tensors"])
    assert sum(row["bytes"] for row in told["tensors"]) == 4 * told["parameters"]
    assert "others" not in {row["class"] for row in told["tensors"]}
    assert (told["active_parameters"] < told["parameters"]) == (spec.experts is not None)
    assert json.loads(json.dumps(told))["rope"]["theta"] == spec.rope_theta
    assert spec.architecture in as_text(told)


def test_as_many_tokens_of_kv_as_are_told_fit_and_no_more(tiny: Path) -> None:
    checkpoint = open_checkpoint(tiny)
    for choice in describe(checkpoint, 50_000_000)["fits"]["choices"]:
        left = 50_000_000 - choice["weight_bytes"]
        per_token = choice["kv_bytes_per_token"]
        assert choice["kv_tokens"] * per_token <= left < (choice["kv_tokens"] + 1) * per_token
    [_, fp32, *_] = describe(checkpoint, 50_000_000)["fits"]["choices"]
    assert KvMemory(layout_of(checkpoint.spec, 1), 3).flat.nbytes == 3 * fp32["kv_bytes_per_token"]
    nothing = describe(checkpoint, 1000)["fits"]["choices"]
    assert [choice["kv_tokens"] for choice in nothing] == [0] * 4
    assert "does not fit" in as_text(describe(checkpoint, 1000))


def test_what_windows_save_is_told(tmp_path: Path) -> None:
    """At 256 tokens: 16 entries of 16; a window of 50, a block of 64 and a token span 8 of them."""
    spec = FAMILY_SPECS["gemma3"]
    checkpoint = open_checkpoint(write_hf_folder(tmp_path / "model", spec, random_tensors(spec, 1)))
    facts = describe(checkpoint, 10**8)
    for choice in facts["fits"]["choices"]:
        page = choice["kv_bytes_per_token"] * 16 // 6
        assert choice["kv_bytes_per_later_token"] * 16 == page
        assert choice["kv_bytes_of_context"] == (16 + 5 * 8) * page
    assert "a token beyond the windows" in as_text(facts)
    plain = FAMILY_SPECS["qwen2"]
    checkpoint = open_checkpoint(
        write_hf_folder(tmp_path / "plain", plain, random_tensors(plain, 1))
    )
    facts = describe(checkpoint, 10**8)
    assert "beyond the windows" not in as_text(facts)
    for choice in facts["fits"]["choices"]:
        assert choice["kv_bytes_of_context"] == 256 * choice["kv_bytes_per_token"]


def test_inspect_says_it_to_people_and_to_programs(tiny: Path) -> None:
    told = answer("inspect", tiny)
    assert told["tokenizer"]["chat_template"] is True
    assert told["tokenizer"]["eos"] == ["<|im_end|>"]
    assert ("MLPs", "Q8_0") in {(row["class"], row["storage"]) for row in told["tensors"]}
    text = run("inspect", tiny).output
    assert "context    256 tokens" in text
    assert "chat template" in text
    assert run("inspect", tiny.parent / "absent.gguf").exit_code == 2


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999"), (35_136, "35.1K"), (134_515_008, "135M"), (7 * 10**9, "7B")]
)
def test_counts_are_short(count: int, text: str) -> None:
    assert count_text(count) == text


def test_a_cut_model_is_checked_against_the_one_it_was(tiny: Path, tmp_path: Path) -> None:
    cut = run("moefy", tiny, tmp_path / "cut", "--experts", 8, "--top-k", 8)
    assert cut.exit_code == 0, cut.output
    assert "mixtral, 2 layers of 8 experts, 8 active" in cut.stdout
    told = answer("inspect", tmp_path / "cut")
    assert told["experts"]["count"] == 8
    common = ("--reference", tiny, "--positions", 300, "--window", 100)
    same = answer("check", tmp_path / "cut", *common, "--quantize", "none", "--max-kl", 1e-6)
    assert same["positions"] == 297
    assert abs(same["mean_kl_nats"]) < 1e-6
    assert same["top1"] == 1
    rough = run("check", tmp_path / "cut", *common, "--max-kl", 1e-6)
    assert rough.exit_code == 1
    assert "above --max-kl 0.000001" in rough.stderr
    assert "top-1" in rough.stdout


def test_a_text_of_ones_own(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("the hour and the ringing on the hour " * 20)
    told = answer("check", tiny, "--text", file)
    assert (told["quantize"], told["kv_dtype"], told["window_tokens"]) == ("int8", "bf16", 256)
    assert told["dtype"] is None, "nor does models inspect name another"
    assert " in int8 on cpu, " in run("check", tiny, "--text", file).stdout
    assert 0 < told["mean_kl_nats"] < 0.1
    file.write_text("e")
    assert "the text has 1 token:" in run("check", tiny, "--text", file).stderr
    file.write_bytes(b"\xff\xfe")
    assert "not UTF-8 text" in run("check", tiny, "--text", file).stderr
    assert run("check", tiny, "--text", tmp_path / "absent").exit_code == 2


@pytest.mark.parametrize(("dtype", "most"), [("fp32", 1e-9), ("bf16", 0.01), ("fp16", 0.001)])
def test_what_torch_computes_in_is_checked_too(tiny: Path, dtype: str, most: float) -> None:
    common = ("--positions", 200, "--window", 100)
    told = answer("check", tiny, *common, "--dtype", dtype, "--kv-dtype", "fp32")
    assert (told["quantize"], told["dtype"], told["device"]) == ("none", dtype, "cpu")
    assert -1e-9 < told["mean_kl_nats"] < most
    assert (told["mean_kl_nats"] > 1e-9) == (dtype != "fp32")
    assert f"in {dtype} on cpu" in run("check", tiny, *common, "--dtype", dtype).stdout


def test_a_device_that_is_not_there_is_said_before_weights_are_read(tiny: Path) -> None:
    result = run("check", tiny, "--device", "cuda:97")
    assert result.exit_code == 2
    assert "engine.device = cuda:97 (--device)" in result.stderr


def test_each_arithmetic_of_serve_has_its_sizes(tiny: Path) -> None:
    choices = describe(open_checkpoint(tiny), 10**8)["fits"]["choices"]
    assert [one["dtype"] for one in choices] == [None, "fp32", "bf16", "fp16"]
    assert [one["quantize"] for one in choices] == ["int8", "none", "none", "none"]
    assert [one["kv_dtype"] for one in choices] == ["bf16", "fp32", "bf16", "bf16"]
    _, fp32, *narrow = (one["weight_bytes"] for one in choices)
    for size in narrow:
        assert fp32 / 2 < size < 0.6 * fp32, "matrices are half as large, norms are not"
    text = run("inspect", tiny).output
    assert all(f"--dtype {dtype}: weights" in text for dtype in ("fp32", "bf16", "fp16"))


def test_models_of_other_tokenizers_are_not_compared(tiny: Path) -> None:
    try:
        resolve("smollm2-135m")
    except UsageError as error:
        pytest.skip(str(error))
    result = run("check", tiny, "--reference", "smollm2-135m")
    assert result.exit_code == 2
    assert "only models of one tokenizer can be compared" in result.stderr
