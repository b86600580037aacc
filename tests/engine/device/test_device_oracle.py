"""Every family on a torch device, against transformers."""

from functools import cache
from pathlib import Path

import pytest
import torch
from device_kit import DEVICES
from transformers import AutoModelForCausalLM

from antiphon.checkpoint import open_checkpoint
from antiphon.engine.device import TORCH_DTYPES, DeviceKv, DeviceLlama, load_on_device
from antiphon.engine.kv_memory import KvDtype, layout_of
from antiphon.testing.family_oracle import engine_logits, oracle_logits, random_tokens
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.testing.tiny_models import random_tensors, write_hf_folder

FAMILIES = pytest.mark.parametrize("family", FAMILY_SPECS)


@cache
def written(family: str, folder: Path) -> Path:
    spec = FAMILY_SPECS[family]
    return write_hf_folder(folder / "model", spec, random_tensors(spec, seed=1))


def logits_on(model: DeviceLlama, device: str, tokens: list[int], kv: KvDtype) -> torch.Tensor:
    """Of every position, computed in chunks, over pages of the device's."""
    layout = layout_of(model.spec, 16, kv)
    memory = DeviceKv(layout, -(-len(tokens) // 16), torch.device(device))
    return engine_logits(model, tokens, memory)


@DEVICES
@FAMILIES
def test_in_fp32_logits_are_those_of_transformers(family: str, device: str, tmp_path: Path) -> None:
    folder, tokens = written(family, tmp_path), random_tokens(FAMILY_SPECS[family])
    expected = oracle_logits(folder, tokens)
    model = load_on_device(open_checkpoint(folder), device=torch.device(device), dtype="fp32")
    found = logits_on(model, device, tokens, KvDtype.FP32)
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert torch.equal(found.argmax(1), expected.argmax(1))


@DEVICES
@FAMILIES
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_in_16_bits_it_is_about_as_close_to_fp32_as_transformers_is(
    family: str, dtype: str, device: str, tmp_path: Path
) -> None:
    """Which experts a row takes may turn on the last bit: then its logits are others altogether,
    for us and for them. So the usual row counts, not the worst."""
    folder, tokens = written(family, tmp_path), random_tokens(FAMILY_SPECS[family])
    truth = oracle_logits(folder, tokens)
    theirs = AutoModelForCausalLM.from_pretrained(
        folder, dtype=TORCH_DTYPES[dtype], attn_implementation="eager"
    ).eval()
    with torch.inference_mode():
        rounded = theirs(torch.tensor([tokens]), use_cache=False).logits[0].float()
    model = load_on_device(open_checkpoint(folder), device=torch.device(device), dtype=dtype)
    found = logits_on(model, device, tokens, KvDtype.BF16 if dtype == "bf16" else KvDtype.FP32)
    ours, others = ((one - truth).abs().mean(1).median() for one in (found, rounded))
    assert 0 < ours < 1.5 * others
    assert ours < 0.05 * truth.std()
