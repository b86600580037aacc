"""I52 on a torch device: pages that a window has passed may hold anything there, too."""

import numpy as np
import pytest
import torch
from device_kit import DEVICES, DeviceBench, model_on
from test_window_pages import Served, asked
from tiny_llama import random_tokens

from antiphon.engine.device import Current, DeviceKv, DeviceLlama
from antiphon.engine.kv_memory import KvLayout
from antiphon.types import NO_PAGE


def served(model: DeviceLlama, device: str, *, apart: bool, pages: int, cache: bool) -> Served:
    def memory(layout: KvLayout, count: int) -> DeviceKv:
        return DeviceKv(layout, count, torch.device(device))

    budget = 24 if apart else 64
    return Served(
        model,  # pyright: ignore[reportArgumentType]
        apart=apart,
        pages=pages,
        cache=cache,
        budget=budget,
        memory=memory,
    )


@DEVICES
@pytest.mark.parametrize("family", ["gemma3", "mistral, window", "phi3"])
@pytest.mark.parametrize("cache", [False, True])
def test_pages_that_passed_may_be_poisoned_on_a_device(
    family: str, cache: bool, device: str
) -> None:
    requests, model = asked(family), model_on(device, family)
    expected = served(model, device, apart=False, pages=400, cache=False).run(requests)
    slim = served(model, device, apart=True, pages=90, cache=cache)
    assert slim.run(requests) == expected
    assert slim.run(requests) == expected, "also out of the prefix cache"
    if cache:
        assert slim.scheduler.view(0.0).prefix_hit_tokens_total > 0


class Area:
    """Memory of others, of which nobody has said what is in it."""

    def __init__(self, pages: int, page_bytes: int) -> None:
        self.content = np.full(pages * page_bytes, 0xFF, np.uint8)

    def begin_write(self, pages: np.ndarray) -> None:
        """The engine writes."""


def shared(device: str) -> tuple[DeviceBench, DeviceKv]:
    """A bench whose pages others write, too."""
    bench = DeviceBench(model_on(device, "gemma3"), device, 4, 40, apart=True)
    layout, pages = bench.memory.layout, bench.memory.pages
    memory = DeviceKv(layout, pages, torch.device(device), Area(pages, layout.page_bytes))
    bench.memory = memory  # pyright: ignore[reportAttributeAccessIssue]
    return bench, memory


@DEVICES
def test_an_empty_entry_brings_nobodys_page(device: str) -> None:
    """What a window has passed reads no page: least of all one that another writes meanwhile."""
    bench, memory = shared(device)
    bench._free = list(range(1, memory.pages))  # page 0 is nobody's
    spec, layout = bench.model.spec, memory.layout
    lane = bench.lane(random_tokens(spec, 150, 1))
    bench.step([(lane, 140)])
    table = lane.table.pages.reshape(-1, layout.entry_pages)
    windowed = np.array([place for place, window in enumerate(layout.windows) if window])
    passed = (141 - max(spec.windows)) // 4
    theirs = table[:passed, windowed].ravel()
    memory.host_writes([0, *theirs.tolist()])
    table[:passed, windowed] = NO_PAGE
    assert torch.isfinite(bench.step([(lane, 10)])).all()
    assert all(memory.current(page) is Current.HOST for page in (0, *theirs.tolist()))


@DEVICES
def test_a_page_of_a_window_comes_when_it_is_seen(device: str) -> None:
    """Others have written it: the step reads what they wrote."""
    bench, memory = shared(device)
    lane = bench.lane(random_tokens(bench.model.spec, 150, 1))
    bench.step([(lane, 140)])
    last = lane.table.pages.reshape(-1, memory.layout.entry_pages)[34]
    memory.host_writes(last)
    assert bench.step([(lane, 10)]).isnan().all(), "all bits set are no number"
    assert all(memory.current(page) is Current.BOTH for page in last.tolist())
