"""Devices that tests run on, tiny models there, and a bench with pages of the device's own."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from tiny_llama import Bench, Lane, random_tokens, tensors_of

from antiphon.checkpoint import ModelSpec
from antiphon.engine.batch import Batch, PageTable, Run
from antiphon.engine.device import TORCH_DTYPES, DeviceKv, DeviceLlama, Shapes, cuda_found
from antiphon.engine.kv_memory import KvDtype, layout_of
from antiphon.testing.tiny_families import FAMILY_SPECS

_FOUND = cuda_found()
NEEDS_CUDA = pytest.mark.skipif(
    not _FOUND.devices,
    reason=f"needs a CUDA device: {_FOUND.program} finds none "
    f"({_FOUND.why_none or 'it is built without'})",
)
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=NEEDS_CUDA)])
LIKE_CUDA = Shapes(rows=16, units=4, query_rows=4, tile=32, exact=True)
"""Every product in one shape, as on CUDA, but small: several blocks, units and tiles a test."""
SHAPES = {"own": None, "one shape": LIKE_CUDA}


@cache
def model_on(
    device: str, family: str, dtype: str = "fp32", shapes: str = "own", seed: int = 1
) -> DeviceLlama:
    return made(
        FAMILY_SPECS[family], device, dtype, SHAPES[shapes], tensors_of(FAMILY_SPECS[family], seed)
    )


def made(
    spec: ModelSpec,
    device: str,
    dtype: str,
    shapes: Shapes | None,
    tensors: dict[str, torch.Tensor],
) -> DeviceLlama:
    return DeviceLlama(
        spec, tensors, device=torch.device(device), dtype=TORCH_DTYPES[dtype], shapes=shapes
    )


class DeviceBench(Bench):
    """A `Bench` whose memory is on the device. What nobody wrote is no number there either."""

    def __init__(
        self,
        model: DeviceLlama,
        device: str,
        page_tokens: int,
        pages: int,
        seed: int = 0,
        kv_dtype: KvDtype = KvDtype.FP32,
        *,
        apart: bool = False,
    ) -> None:
        """Room for `pages` pages of all layers. `apart`: layers with windows have their own."""
        self.model = model  # pyright: ignore[reportAttributeAccessIssue]
        layout = layout_of(model.spec, page_tokens, kv_dtype, windows_apart=apart)
        pages *= layout.entry_pages
        self.memory = DeviceKv(layout, pages, torch.device(device))  # pyright: ignore[reportAttributeAccessIssue]
        self.memory.flat.fill_(float("nan"))
        self._free = np.random.default_rng(seed).permutation(pages).tolist()

    def lane(self, tokens: list[int]) -> Lane:
        table, layout = PageTable(), self.memory.layout
        wanted = -(-len(tokens) // layout.page_tokens) * layout.entry_pages
        table.extend(0, [self._free.pop() for _ in range(wanted)])
        return Lane(tokens, table)

    def kv(self, lane: Lane) -> torch.Tensor:
        layout, content = self.memory.layout, self.memory.tensor.cpu()
        entries, slots = np.divmod(np.arange(lane.done), layout.page_tokens)
        table = lane.table.pages.reshape(-1, layout.entry_pages)
        of_layers = [
            content[table[entries, place], within][np.arange(lane.done), :, :, slots]
            for place, within in layout.homes.tolist()
        ]
        return torch.stack(of_layers, 1)


class AloneOn:
    """The reference: one sequence by itself, all of it in one pass, in pages of 16."""

    def __init__(
        self, model: DeviceLlama, device: str, seed: int, kv_dtype: KvDtype, count: int
    ) -> None:
        self.tokens = random_tokens(model.spec, count, seed)
        bench = DeviceBench(model, device, 16, -(-count // 16), kv_dtype=kv_dtype)
        lane = bench.lane(self.tokens)
        run = Run(tokens=self.tokens, start=0, table=lane.table, sampled=True)
        batch = replace(Batch.of([run], bench.memory.layout), sampled=np.arange(count))
        self.logits = model.forward(batch, bench.memory).clone()  # pyright: ignore[reportArgumentType]
        lane.done = count
        self.kv = bench.kv(lane)
