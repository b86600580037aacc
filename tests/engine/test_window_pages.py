"""I52: pages that a window has passed may hold anything, and nobody's tokens change."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from engine_driver import request_of
from hypothesis import given
from hypothesis import strategies as st
from tiny_llama import model_of, random_tokens

from antiphon.checkpoint import open_checkpoint
from antiphon.core.scheduler import STANDARD_PARTS, Scheduler
from antiphon.engine import load_llama
from antiphon.engine.kv_memory import KvDtype, KvLayout, KvMemory, PagedKv, layout_of
from antiphon.engine.layer_split import split_of
from antiphon.engine.model import Model
from antiphon.engine.torch_engine import TorchEngine
from antiphon.testing.family_oracle import oracle_of
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.testing.tiny_models import random_tensors, write_hf_folder
from antiphon.types import (
    Admitted,
    KvConfig,
    ModelInfo,
    Request,
    SchedulerConfig,
    TokenGenerated,
    TokenId,
)

FAMILIES = ("gemma3", "mistral, window", "phi3")
EACH = pytest.mark.parametrize("family", FAMILIES)
CONTEXT = 250
"""Past every window, several times."""
Tokens = dict[tuple[str, int], list[TokenId]]


@given(st.lists(st.sampled_from([0, 512, 1024]), min_size=1, max_size=64))
def test_each_layer_has_one_place_among_layers_of_its_window(windows: list[int]) -> None:
    split = split_of(windows)
    if split is None:
        assert not any(windows)
        return
    assert len(set(split.homes)) == len(windows)
    for layer, (page, place) in enumerate(split.homes):
        assert split.windows[page] == windows[layer] and 0 <= place < split.page_layers
    assert sum(group.pages for group in split.groups) == len(split.windows)
    sizes = [group.window for group in split.groups]
    assert sizes == sorted(set(windows)), "those that see all come first"
    gaps = len(split.windows) * split.page_layers - len(windows)
    assert gaps < len(split.groups) * split.page_layers


def test_large_models_have_few_pages_and_few_gaps() -> None:
    """Gemma 3 in its four sizes: one layer in six sees all."""
    for layers, pages, places in ((26, 7, 28), (34, 7, 35), (48, 6, 48), (62, 13, 65)):
        windows = [0 if layer % 6 == 5 else 1024 for layer in range(layers)]
        split = split_of(windows)
        assert split is not None
        assert (len(split.windows), len(split.windows) * split.page_layers) == (pages, places)


def test_layouts_are_named_alike_if_pages_hold_the_same() -> None:
    gemma, mistral = FAMILY_SPECS["gemma3"], FAMILY_SPECS["mistral, window"]
    turned = replace(gemma, windows=gemma.windows[::-1])
    names = [layout_of(one, 16, windows_apart=True).name for one in (gemma, turned, gemma)]
    assert names[0] == names[2] != names[1]
    assert layout_of(mistral, 16, windows_apart=True).name == layout_of(mistral, 16).name
    many = replace(gemma, layers=1000, windows=tuple(range(1, 1001)))
    assert len(layout_of(many, 16, windows_apart=True).name) < 200


class Served:
    """A scheduler and a real engine; whatever page nobody holds is NaN before each step."""

    def __init__(
        self,
        model: Model,
        *,
        apart: bool,
        pages: int,
        cache: bool,
        budget: int,
        memory: Callable[[KvLayout, int], PagedKv] = KvMemory,
    ) -> None:
        layout = layout_of(model.spec, 4, KvDtype.FP32, windows_apart=apart)
        self.entries = pages
        self.memory = memory(layout, pages * layout.entry_pages)
        self.engine = TorchEngine(model, self.memory)
        info = ModelInfo(
            name="tiny",
            identity=bytes(32),
            numerics="test",
            vocab_size=model.spec.vocab_size,
            context_len=model.spec.context_len,
            eos_token_ids=(),
            kv_bytes_per_token=1,
            kv_groups=layout.groups,
        )
        self.scheduler = Scheduler(
            config=SchedulerConfig(max_batched_tokens=budget),
            kv=KvConfig(page_tokens=4, block_tokens=8, prefix_cache=cache),
            pages=self.memory.pages,
            model=info,
            max_model_len=CONTEXT,
            parts=STANDARD_PARTS,
        )
        self.most_held = 0.0

    def poison(self) -> None:
        """What is free holds nothing that anybody may read."""
        self.memory.tensor[self.scheduler._pool._free] = float("nan")

    def run(self, requests: Sequence[Request]) -> Tokens:
        tokens: Tokens = {}
        for request in requests:
            assert isinstance(self.scheduler.add(request, 0.0), Admitted)
        self.poison()
        while (plan := self.scheduler.step(0.0)) is not None:
            self.poison()
            held = self.scheduler.view(0.0).held_pages / self.memory.layout.entry_pages
            self.most_held = max(self.most_held, held)
            result = self.engine.forward(plan)
            assert not result.faults
            for event in self.scheduler.complete(plan, result, 0.0):
                if isinstance(event, TokenGenerated):
                    tokens.setdefault((event.request, event.sequence), []).append(event.token)
        assert self.scheduler.view(0.0).held_pages == 0
        return tokens


@cache
def model(family: str, dtype: str) -> Model:
    return model_of(FAMILY_SPECS[family], dtype=dtype)


def asked(family: str) -> list[Request]:
    """Long and short ones, a fork, and one that goes on where the first ends: chunks and decodes
    past the window, and prefixes that are found."""
    long = random_tokens(FAMILY_SPECS[family], 180, 1)
    short = random_tokens(FAMILY_SPECS[family], 30, 2)
    shapes = [(long, 1, 40), (short, 2, 90), (long[:100], 1, 20), ((*long, *short), 1, 30)]
    return [
        request_of(f"r{number}", prompt, temperature=0.8, seed=number, max_tokens=most, n=n)
        for number, (prompt, n, most) in enumerate(shapes)
    ]


@EACH
@pytest.mark.parametrize("dtype", ["fp32", "int8"])
@pytest.mark.parametrize("cache", [False, True])
def test_pages_that_passed_may_be_poisoned(family: str, dtype: str, cache: bool) -> None:
    requests = asked(family)
    plain = Served(model(family, dtype), apart=False, pages=400, cache=False, budget=64)
    expected = plain.run(requests)
    slim = Served(model(family, dtype), apart=True, pages=90, cache=cache, budget=24)
    assert slim.run(requests) == expected
    assert slim.run(requests) == expected, "also out of the prefix cache"
    if cache:
        assert slim.scheduler.view(0.0).prefix_hit_tokens_total > 0


@pytest.mark.parametrize("family", ["gemma3", "mistral, window"])
def test_far_past_the_window_it_says_what_transformers_says_in_fewer_pages(
    family: str, tmp_path: Path
) -> None:
    spec = FAMILY_SPECS[family]
    folder = write_hf_folder(tmp_path / "tiny", spec, random_tensors(spec, seed=3))
    prompt = random_tokens(spec, 200, 5)
    served = Served(
        load_llama(open_checkpoint(folder), dtype="fp32", cache_dir=None),
        apart=True,
        pages=70,
        cache=True,
        budget=16,
    )
    [said] = served.run([request_of("r", prompt, max_tokens=40)]).values()
    with torch.inference_mode():
        ids = torch.tensor([[*prompt, *said]])
        logits = oracle_of(folder)(ids).logits[0, len(prompt) - 1 : -1]
    assert said == logits.argmax(-1).tolist()
    entries = -(-(len(prompt) + len(said)) // 4)
    assert served.most_held < (0.5 if family == "gemma3" else 0.35) * entries
