"""A dense model cut into experts: it computes what it did, for transformers and for the engine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from antiphon.checkpoint import ModelSpec, StorageType, open_checkpoint
from antiphon.engine import load_llama
from antiphon.errors import UsageError
from antiphon.moefy import balanced_clusters, moefy, split_mlp
from antiphon.testing.family_oracle import engine_logits, oracle_logits, random_tokens
from antiphon.testing.text_corpus import CORPUS
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_gguf, write_hf_folder
from antiphon.text import Tokenizer

DENSE = ["llama", "llama, llama3 RoPE", "mistral, window", "qwen3"]


def dense(folder: Path, name: str, **changes: object) -> Path:
    spec = replace(FAMILY_SPECS[name], **changes)
    return write_hf_folder(folder / "dense", spec, random_tensors(spec, seed=5))


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("experts", [2, 11])
def test_with_all_experts_active_nothing_changes(name: str, experts: int, tmp_path: Path) -> None:
    """11 is no power of two: the shares 1 / 11 and the factor 11 are rounded."""
    source = dense(tmp_path, name)
    spec = moefy(open_checkpoint(source), tmp_path / "cut", experts=experts, active=experts)
    tokens = random_tokens(spec)
    expected = oracle_logits(source, tokens)
    assert relative_error(oracle_logits(tmp_path / "cut", tokens), expected) < 1e-6
    opened = open_checkpoint(tmp_path / "cut")
    assert opened.spec == spec
    before, after = (
        engine_logits(load_llama(checkpoint, dtype="fp32", cache_dir=None), tokens)
        for checkpoint in (open_checkpoint(source), opened)
    )
    assert relative_error(after, before) < 1e-6
    quantised = engine_logits(load_llama(opened, dtype="int8", cache_dir=None), tokens)
    assert relative_error(quantised, expected) < 0.1


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_with_fewer_the_engine_chooses_as_transformers_does(name: str, tmp_path: Path) -> None:
    spec = moefy(open_checkpoint(dense(tmp_path, name)), tmp_path / "cut", experts=11, active=3)
    tokens = random_tokens(spec)
    model = load_llama(open_checkpoint(tmp_path / "cut"), dtype="fp32", cache_dir=None)
    expected = oracle_logits(tmp_path / "cut", tokens)
    assert relative_error(engine_logits(model, tokens), expected) < 1e-5


def test_a_gguf_file_keeps_its_tokenizer_and_shards_are_read(tmp_path: Path) -> None:
    file = write_gguf(
        tmp_path / "tiny.gguf", TINY_SPEC, random_tensors(TINY_SPEC, 2), storage=StorageType.Q8_0
    )
    source, shares = open_checkpoint(file), []
    moefy(source, tmp_path / "cut", experts=4, active=4, advance=shares.append, shard_bytes=100_000)
    opened = open_checkpoint(tmp_path / "cut")
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert len({entry.path for entry in opened.tensors.values()}) > 1
    assert opened.tokenizer.chat_template == source.tokenizer.chat_template
    before, after = Tokenizer.load(source.tokenizer), Tokenizer.load(opened.tokenizer)
    assert [after.encode(text) for text in CORPUS] == [before.encode(text) for text in CORPUS]
    ends = [(t.bos_token, t.eos_token, t.eos_token_ids, t.add_bos) for t in (before, after)]
    assert ends[0] == ends[1]


def test_the_router_finds_the_experts_that_a_row_excites() -> None:
    """Four kinds of neurons, each excited by one direction: half of the experts do it all."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.linalg.qr(torch.randn(16, 16, generator=generator))[0][:4]
    kinds = torch.arange(4).repeat_interleave(8)[torch.randperm(32, generator=generator)]
    gate = directions[kinds] + 0.05 * torch.randn(32, 16, generator=generator)
    split = split_mlp(gate, torch.ones(16), 4, 1)
    for kind in range(4):
        row = 4 * directions[kind]
        best = int((split.router @ row).argmax())
        assert set(kinds[split.neurons[best]].tolist()) == {kind}
    assert sorted(split.neurons.flatten().tolist()) == list(range(32))
    assert len(balanced_clusters(gate.numpy(), 4)) == 32


@pytest.mark.parametrize(
    ("spec", "experts", "active", "words"),
    [
        (TINY_SPEC, 5, 2, "--experts 5: must divide the MLP's 88 neurons, such as 2, 4, 8, 11"),
        (TINY_SPEC, 1, 1, "--experts 1: must be 2 to 256"),
        (TINY_SPEC, 4, 5, "--top-k 5: must be 1 to 4"),
        (TINY_SPEC, 4, 0, "--top-k 0: must be 1 to 4"),
        (FAMILY_SPECS["mixtral"], 4, 2, "is a mixture of 4 experts already"),
        (FAMILY_SPECS["qwen2"], 4, 2, "qwen2 model with biases in its attention"),
        (FAMILY_SPECS["gemma3"], 4, 2, "gemma3 model with norms, windows or embeddings"),
        (FAMILY_SPECS["phi3"], 4, 2, "phi3 model with its own scale of attention, or RoPE on"),
    ],
)
def test_what_can_not_be_cut_is_refused_and_leaves_nothing(
    spec: ModelSpec, experts: int, active: int, words: str, tmp_path: Path
) -> None:
    source = write_hf_folder(tmp_path / "dense", spec, random_tensors(spec, seed=5))
    with pytest.raises(UsageError, match=words):
        moefy(open_checkpoint(source), tmp_path / "cut", experts=experts, active=active)
    assert [path.name for path in tmp_path.iterdir()] == ["dense"]


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(dense(tmp_path, "llama"))
    (tmp_path / "cut").mkdir()
    with pytest.raises(UsageError, match="is there already"):
        moefy(checkpoint, tmp_path / "cut", experts=4, active=2)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be written"):
        moefy(checkpoint, tmp_path / "file/cut", experts=4, active=2)


def test_what_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(dense(tmp_path, "llama"))

    def interrupt(share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        moefy(checkpoint, tmp_path / "cut", experts=4, active=2, advance=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["dense"]


def test_the_config_says_what_transformers_needs(tmp_path: Path) -> None:
    moefy(open_checkpoint(dense(tmp_path, "qwen3")), tmp_path / "cut", experts=8, active=2)
    config = json.loads((tmp_path / "cut/config.json").read_text())
    assert config["architectures"] == ["Qwen3MoeForCausalLM"]
    assert (config["num_experts"], config["num_experts_per_tok"]) == (8, 2)
    assert config["norm_topk_prob"] is True
