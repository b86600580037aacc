"""The bitwise law on the real model, once: every width, layer and head as in service."""

import pytest
import torch
from engine_driver import Driver, request_of
from smollm2 import model, prompts

from antiphon.types import SequenceKey

BOTH = pytest.mark.parametrize("dtype", ["fp32", "int8"])


@BOTH
def test_tokens_and_logprobs_are_the_same_alone_in_other_chunks_and_in_other_pages(
    dtype: str,
) -> None:
    chosen = [prompt for prompt in prompts() if 60 <= len(prompt) <= 130][:3]
    requests = [
        request_of(f"r{number}", prompt, temperature=0.7, seed=number, logprobs=3, max_tokens=6)
        for number, prompt in enumerate(chosen)
    ]
    together = Driver(model(dtype), page_tokens=16)
    together.run(requests)
    for request in requests:
        alone = Driver(model(dtype), page_tokens=1, seed=1)
        alone.run([request], chunk=33)
        for index in range(6):
            key = SequenceKey(request.id, 0), index
            assert alone.samples[key] == together.samples[key]


@BOTH
def test_keys_and_values_are_the_same_as_prefill_and_as_decode(dtype: str) -> None:
    prompt = prompts()[9][:24]
    kept = []
    for chunk in (24, 1):
        driver = Driver(model(dtype), page_tokens=64, pages=1)
        driver.run([request_of("r", prompt, max_tokens=1)], chunk=chunk)
        kept.append(driver.memory.tensor[0, :, :, :, : len(prompt)].clone())
    assert torch.isfinite(kept[0]).all()
    assert torch.equal(kept[0], kept[1])
