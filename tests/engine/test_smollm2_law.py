"""The bitwise law on the real model, once: every width, layer and head as in service."""

import pytest
import torch
from engine_driver import Driver, request_of
from smollm2 import checkpoint, model, prompts

from antiphon.core.scheduler import Scheduler
from antiphon.engine.kv_memory import KvMemory, layout_of
from antiphon.engine.torch_engine import TorchEngine
from antiphon.types import (
    Admitted,
    KvConfig,
    Logprobs,
    ModelInfo,
    Request,
    SchedulerConfig,
    SequenceKey,
    TokenGenerated,
    TokenId,
)

Outputs = dict[tuple[str, int], list[tuple[TokenId, Logprobs | None]]]

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


def served(page_tokens: int, budget: int, requests: list[Request]) -> tuple[Outputs, int]:
    """Tokens and scores of each request by the real scheduler; how many prompt tokens were found.

    The second half comes when the first is done, so that what repeats is found in the cache.
    """
    checked = checkpoint()
    info = ModelInfo(
        name="smollm2",
        identity=checked.identity,
        numerics="test",
        vocab_size=checked.spec.vocab_size,
        context_len=checked.spec.context_len,
        eos_token_ids=(),
        kv_bytes_per_token=1,
    )
    memory = KvMemory(layout_of(checked.spec, page_tokens), 1024 // page_tokens)
    engine = TorchEngine(model(), memory)
    scheduler = Scheduler(
        config=SchedulerConfig(max_batched_tokens=budget),
        kv=KvConfig(page_tokens=page_tokens, block_tokens=64),
        pages=memory.pages,
        model=info,
        max_model_len=512,
    )
    outputs: Outputs = {}
    for part in (requests[: len(requests) // 2], requests[len(requests) // 2 :]):
        for request in part:
            assert isinstance(scheduler.add(request, 0.0), Admitted)
        while (plan := scheduler.step(0.0)) is not None:
            for event in scheduler.complete(plan, engine.forward(plan), 0.0):
                if isinstance(event, TokenGenerated):
                    key = (event.request, event.sequence)
                    outputs.setdefault(key, []).append((event.token, event.logprobs))
    return outputs, scheduler.view(0.0).prefix_hit_tokens_total


def test_served_tokens_do_not_depend_on_repeats_pages_or_budget() -> None:
    """Through scheduler and engine: neighbours, forks, prefix hits, chunk sizes, page tables."""
    long = next(prompt for prompt in prompts() if 120 <= len(prompt) <= 130)
    short = next(prompt for prompt in prompts() if 20 <= len(prompt) <= 30)
    asked = [(long, 2), (short, 1), (long, 2), ((*long[:70], *short), 1)]
    requests = [
        request_of(f"r{i}", ids, temperature=0.8, seed=7, logprobs=2, max_tokens=5, n=n)
        for i, (ids, n) in enumerate(asked)
    ]
    first, found = served(16, 200, requests)
    assert found >= 64 + 64, "the repeats must find the prefix of the first"
    assert first["r2", 0] == first["r0", 0]
    assert first["r2", 1] == first["r0", 1]
    assert first["r0", 0] != first["r0", 1]
    other, _ = served(1, 33, requests)
    assert other == first
    alone, found = served(16, 33, requests[3:])
    assert found == 0
    assert alone["r3", 0] == first["r3", 0]
