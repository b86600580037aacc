"""The tiny models are real: `transformers` loads the folder, both formats hold the same model."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from antiphon.checkpoint import GgufTokenizer, LinearScaling, Llama3Scaling, open_checkpoint
from antiphon.testing.tiny_models import (
    CHAT_TEMPLATE,
    TINY_SPEC,
    random_tensors,
    write_gguf,
    write_hf_folder,
)

LLAMA3 = Llama3Scaling(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_len=64
)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tied_embeddings": True},
        {"qkv_bias": True, "out_bias": True, "mlp_bias": True},
        {"rope_scaling": LLAMA3},
        {"rope_scaling": LinearScaling(factor=2.0)},
    ],
)
def test_transformers_loads_every_tensor(tmp_path: Path, changes: dict[str, object]) -> None:
    spec = replace(TINY_SPEC, **changes)
    tensors = random_tensors(spec, seed=1)
    folder = write_hf_folder(tmp_path / "a", spec, tensors)
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    state = model.state_dict()
    for name, array in tensors.items():
        assert torch.equal(state[name], torch.tensor(array))
    assert torch.isfinite(model(torch.tensor([[1, 5, 9]])).logits).all()


def test_one_seed_one_model() -> None:
    first, again, other = (random_tensors(TINY_SPEC, seed) for seed in (1, 1, 2))
    assert all((first[name] == again[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)


def test_both_formats_hold_the_same_tokenizer(tmp_path: Path) -> None:
    tensors = random_tensors(TINY_SPEC, seed=1)
    folder = write_hf_folder(tmp_path / "a", TINY_SPEC, tensors)
    found = open_checkpoint(write_gguf(tmp_path / "a.gguf", TINY_SPEC, tensors)).tokenizer
    assert isinstance(found, GgufTokenizer)
    theirs = AutoTokenizer.from_pretrained(folder)
    assert theirs.convert_ids_to_tokens(range(TINY_SPEC.vocab_size)) == list(found.tokens)
    assert found.chat_template == theirs.chat_template == CHAT_TEMPLATE
    text = "the cat and <|im_end|> é 🙂"
    assert theirs.decode(theirs(text)["input_ids"]) == text
