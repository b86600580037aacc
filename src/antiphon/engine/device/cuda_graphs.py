"""CUDA only: a step's operations, captured once for each shape and run again with one call.

A step of one token a sequence is hundreds of short kernels, which take the processor longer to
start than the device to run. What is captured reads its numbers from tensors that stay where they
are, so it serves every later step of the same shape. Padding keeps shapes few, and changes no bit.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch

from .device_kv import DeviceKv
from .device_llama import Compute, run_at_once
from .step_tensors import StepShape, StepTensors

MOST_GRAPHS = 32
"""Each keeps its results' memory; those used last stay."""
_WARM_UPS = 2
"""Before a capture libraries may still make rooms of their own."""


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    packed: torch.Tensor
    logits: torch.Tensor


class StepGraphs:
    """A `Runner` for one model and one KV memory. The second step of a shape is captured."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._captured: OrderedDict[StepShape, _Captured] = OrderedDict()
        self._seen: set[StepShape] = set()
        self._pool: Any = None

    def __len__(self) -> int:
        """Graphs that are kept."""
        return len(self._captured)

    def __call__(
        self, compute: Compute, shape: StepShape, packed: torch.Tensor, memory: DeviceKv
    ) -> torch.Tensor:
        """Logits that are valid until the next call."""
        captured = self._captured.get(shape)
        if captured is None:
            if shape not in self._seen:
                self._seen.add(shape)
                return run_at_once(compute, shape, packed, memory)
            captured = self._captured[shape] = self._capture(compute, shape, packed, memory)
        self._captured.move_to_end(shape)
        while len(self._captured) > MOST_GRAPHS:
            self._captured.popitem(last=False)
        captured.packed.copy_(packed)
        captured.graph.replay()
        return captured.logits

    def _capture(
        self, compute: Compute, shape: StepShape, packed: torch.Tensor, memory: DeviceKv
    ) -> _Captured:
        """Runs the step, more than once: it writes the same keys and values each time."""
        kept = packed.to(self._device)
        step = StepTensors.of(shape, kept)
        side = torch.cuda.Stream(self._device)
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                compute(step, memory)
        torch.cuda.current_stream(self._device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        # Another thread may seal pages meanwhile: that is no part of the capture.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            logits = compute(step, memory)
        return _Captured(graph, kept, logits)
