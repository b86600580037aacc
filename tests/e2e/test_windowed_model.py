"""A model with sliding windows, far past them: the same answers on every route, in less memory."""

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from completions import ask
from e2e_process import Served, at_rest, config_file, joined

from antiphon import LLM, SamplingParams
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.testing.tiny_models import random_tensors, write_hf_folder
from command_here import run_here

PROMPT = "It was the best of times, it was the worst of times. " * 50
LEAST_TOKENS = 1700
"""Of the prompt."""
LAYERS, WINDOW, PAGE_TOKENS, BLOCK_TOKENS = 6, 50, 16, 64
A_LAYER = 2 * 32 * 2
"""Bytes of a token's KV in a layer: keys and values of 20 elements, which are kept as 32."""
A_TOKEN = LAYERS * A_LAYER
"""If no layer gives any back."""


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five layers of six see 50 positions."""
    spec = replace(FAMILY_SPECS["gemma3"], context_len=4096)
    folder = tmp_path_factory.mktemp("models") / "gemma"
    return write_hf_folder(folder, spec, random_tensors(spec, seed=1))


@pytest.fixture(scope="module", params=[None, "bf16"], ids=["kernels", "torch"])
def dtype(request: pytest.FixtureRequest) -> str | None:
    """In bf16 torch computes, as on a device."""
    return request.param


@pytest.fixture(scope="module")
def alone(gemma: Path, dtype: str | None) -> str:
    """What the model says in this process, with room for everything."""
    with LLM(str(gemma), dtype=dtype, kv_memory="16MiB", max_model_len=4096) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=48, ignore_eos=True)
        [answer] = llm.generate([PROMPT], params)
    assert len(answer.prompt_token_ids) > LEAST_TOKENS
    return answer.outputs[0].text


@pytest.fixture
def start(gemma: Path, dtype: str | None) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []
    arithmetic = () if dtype is None else ("--dtype", dtype)

    def begin(*arguments: str) -> Served:
        started.append(Served("serve", str(gemma), "--port", "0", *arithmetic, *arguments))
        started[-1].until(joined)
        return started[-1]

    yield begin
    for served in started:
        if served.process.poll() is None:
            assert served.stop(signal.SIGTERM) == 0, "".join(served.output)


def said(served: Served) -> str:
    body: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 48, "temperature": 0}
    model = httpx.get(f"{served.url}/v1/models").json()["data"][0]["id"]
    [choice] = ask(served, model=model, ignore_eos=True, **body)
    return choice["text"]


def test_a_worker_serves_what_would_not_fit_without_windows(
    start: Callable[..., Served], alone: str
) -> None:
    memory = 1 << 20
    assert memory < LEAST_TOKENS * A_TOKEN
    served = start("--kv-memory", str(memory))
    assert said(served) == alone
    assert said(served) == alone, "its end is found in the prefix cache"
    assert served.until_metrics(at_rest)("vllm:prefix_cache_hits_total") > LEAST_TOKENS - 64
    assert served.metrics()("vllm:num_preemptions_total") == 0


def test_what_one_worker_computed_another_goes_on_with(
    gemma: Path, tmp_path: Path, dtype: str | None, alone: str
) -> None:
    """More than thirty windows: all of the layer that sees all moves, and of five layers the last
    window."""
    arithmetic = {} if dtype is None else {"dtype": dtype}
    file = config_file(
        tmp_path / "cluster.toml",
        model={"name": str(gemma), **arithmetic},
        http={"port": 0},
        kv={"memory_bytes": "8MiB"},
        router={"tpot_s": 0.0001},
    )
    served = Served("serve", str(file), "--prefill", "1", "--decode", "1")
    served.until(joined)
    assert said(served) == alone
    metrics = served.until_metrics(at_rest)
    tokens = int(metrics("antiphon_pulled_tokens_total"))
    assert tokens > LEAST_TOKENS
    entries = -(-tokens // PAGE_TOKENS)
    passed = (tokens + 1 - WINDOW) // BLOCK_TOKENS * BLOCK_TOKENS // PAGE_TOKENS
    pages = entries + (LAYERS - 1) * (entries - passed)
    assert metrics("antiphon_link_bytes_total") == pages * PAGE_TOKENS * A_LAYER
    assert pages < entries * LAYERS / 4
    assert metrics("antiphon_failed_pulls_total") == 0
    assert metrics("antiphon_recomputed_tokens_total") == 0
    assert served.stop() == 0


def test_another_worker_fetches_what_one_has_stored(
    start: Callable[..., Served], alone: str
) -> None:
    served = start("--mixed", "2", "--kv-memory", "8MiB", "--store-memory", "64MiB")
    assert said(served) == alone
    served.until_metrics(lambda seen: seen("antiphon_store_blocks") * 64 > LEAST_TOKENS - 64)
    served.until_metrics(
        lambda seen: seen("antiphon_kv_index_held") >= seen("antiphon_store_blocks")
    )
    looked = run_here("kv", "lookup", "--text", PROMPT, "--json", "--url", served.url)
    [computed] = {
        place["holder"]
        for place in json.loads(looked.stdout)["places"]
        if place["tier"] == "device" and place["tokens"]
    }
    assert run_here("drain", computed, "--url", served.url).returncode == 0
    assert said(served) == alone
    metrics = served.until_metrics(lambda seen: seen("antiphon_fetches_total") > 0)
    assert metrics("vllm:external_prefix_cache_hits_total") > LEAST_TOKENS - 64
    assert metrics("antiphon_failed_fetches_total") == 0
