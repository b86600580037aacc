"""The tiny families' GGUF files are what others read: not only our own reader knows the writer."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from antiphon.testing.family_oracle import oracle_of
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.testing.tiny_models import random_tensors, write_gguf, write_hf_folder


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "phi3", "gemma3", "qwen3_moe"])
def test_transformers_finds_the_same_weights_in_both_formats(family: str, tmp_path: Path) -> None:
    """Names, order of rows, fused and stacked parts, norms less 1: equal to the last bit.

    Its reader guesses the config from a part of the metadata; it is told what the folder says.
    Mixtral's and dots.llm1's files it doesn't read.
    """
    logging.disable_progress_bar()
    spec = FAMILY_SPECS[family]
    tensors = random_tensors(spec, seed=1)
    folder = write_hf_folder(tmp_path / "a", spec, tensors)
    write_gguf(tmp_path / "a.gguf", spec, tensors)
    found = AutoModelForCausalLM.from_pretrained(
        tmp_path,
        gguf_file="a.gguf",
        config=AutoConfig.from_pretrained(folder),
        dtype=torch.float32,
    )
    expected = oracle_of(folder).state_dict()
    assert found.state_dict().keys() == expected.keys()
    for name, values in found.state_dict().items():
        assert torch.equal(values, expected[name]), name
