"""Speed of the int8 matrix products on one core, against torch and against the machine's limits.

    PYTHONPATH=src python benchmarks/int8_gemm.py              # the best kernels of this CPU
    env ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 \\
        NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES=+avx2,+fma,+bmi,+bmi2,+popcnt,+sse4.2 \\
        PYTHONPATH=src python benchmarks/int8_gemm.py          # AVX2 only, all but fbgemm

Peers: torch's `quantized.linear_dynamic` (8-bit activations, one scale per batch) on fbgemm, which
takes the best instructions it finds and can't be held back, and on oneDNN; `F.linear` in fp32.

One pinned core; CPU time of the thread, so that a busy neighbour costs cache but not turns; medians
of many short runs with the quartiles' distance; contestants take turns. Weights of one shape rotate
through enough copies to leave the caches (`--hot` keeps one copy).
"""

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numba import njit
from support import result

from antiphon.engine.int8 import (
    CpuLevel,
    PackedWeight,
    QuantizedRows,
    cpu_levels,
    multiply,
    pack,
    quantize_rows,
)
from antiphon.engine.int8.gemm import _tile_avx2, _tile_avx512, _tile_generic
from antiphon.engine.int8.microkernel import TALLEST

SHAPES = {
    "qkv 576→960": (576, 960),
    "o 576→576": (576, 576),
    "gate+up 576→3072": (576, 3072),
    "down 1536→576": (1536, 576),
    "head 576→49152": (576, 49152),
}
LAYERS = 30
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 512)
CACHES_BYTES = 64 * 2**20
ENGINES = ("fbgemm", "onednn")


def seconds(calls: dict[str, Callable[[], None]], budget_s: float) -> dict[str, list[float]]:
    """Time the calls in turn until the budget is spent; at least five rounds after a warm-up."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end or len(times[next(iter(calls))]) < 5:
        for name, call in calls.items():
            start = time.thread_time()
            call()
            times[name].append(time.thread_time() - start)
    return times


def spread(values: list[float]) -> float:
    """Distance of the quartiles, relative to the median."""
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle


def rotating(items: list) -> Iterator:
    while True:
        yield from items


def weights(shape: tuple[int, int], hot: bool) -> list[np.ndarray]:
    inputs, channels = shape
    copies = 1 if hot else max(1, min(LAYERS, CACHES_BYTES // (inputs * channels)))
    rng = np.random.default_rng(0)
    return [rng.standard_normal((channels, inputs), np.float32) for _ in range(copies)]


def ours(x: np.ndarray, packed: list[PackedWeight], channels: int) -> Callable[[], None]:
    rows, out = QuantizedRows.empty(len(x), packed[0]), np.empty((len(x), channels), np.float32)
    each = rotating(packed)

    def call() -> None:
        quantize_rows(x, rows)
        multiply(rows, next(each), out)

    return call


def torch_fp32(x: torch.Tensor, floats: list[torch.Tensor]) -> Callable[[], None]:
    each = rotating(floats)

    def call() -> None:
        torch.nn.functional.linear(x, next(each))

    return call


def dynamic(x: torch.Tensor, prepacked: list) -> Callable[[], None]:
    each = rotating(prepacked)

    def call() -> None:
        torch.ops.quantized.linear_dynamic(x, next(each), False)

    return call


def prepack(weight: torch.Tensor, engine: str):
    torch.backends.quantized.engine = engine
    scale = weight.abs().amax(1) / 127
    zeros = torch.zeros(len(weight), dtype=torch.int64)
    quantized = torch.quantize_per_channel(weight, scale, zeros, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(quantized, None)


@njit(nogil=True)
def _read(words):
    """Sum of all words: as fast as one core reads."""
    total = 0
    for i in range(len(words)):
        total += words[i]
    return total


@njit(nogil=True)
def _tiles_avx512(repeat, height, x, w, pairs, scale, out):
    for _ in range(repeat):
        _tile_avx512(height, x, pairs * 4, w, pairs, w, scale, scale, out, 64)


@njit(nogil=True)
def _tiles_avx2(repeat, height, x, w, pairs, scale, out):
    for _ in range(repeat):
        _tile_avx2(height, x, pairs * 4, w, pairs, w, scale, scale, out, 64)


@njit(nogil=True)
def _tiles_generic(repeat, height, x, w, pairs, scale, out):
    for _ in range(repeat):
        _tile_generic(height, x, pairs * 4, w, pairs, w, scale, scale, out, 64)


def limits(budget_s: float) -> tuple[float, float]:
    """(bytes per second that one core reads, operations per second of a tile that sits in L1)."""
    words = np.ones(256 * 2**20 // 8, np.int64)
    level = cpu_levels()[0]
    height = TALLEST[level]
    tiles = {
        CpuLevel.AVX512: _tiles_avx512,
        CpuLevel.AVX2: _tiles_avx2,
        CpuLevel.GENERIC: _tiles_generic,
    }[level]
    packed = pack(np.ones((16, 256), np.float32))
    rows = QuantizedRows.empty(height, packed)
    scale, out = np.ones(16, np.float32), np.empty((height, 16), np.float32)
    addresses = (rows.values.ctypes.data, packed.panels.ctypes.data, 128)

    def read() -> None:
        _read(words)

    def tile() -> None:
        tiles(2000, height, *addresses, scale.ctypes.data, out.ctypes.data)

    times = seconds({"read": read, "tile": tile}, budget_s)
    operations = 2000 * 2 * height * 16 * 256
    return (
        words.nbytes / statistics.median(times["read"]),
        operations / statistics.median(times["tile"]),
    )


def by_shape(batches: Sequence[int], budget_s: float, hot: bool) -> list[dict]:
    """Print and return a table: rates of all contestants, by shape and number of rows."""
    table = []
    print("shape              rows | int8 GOP/s   GB/s    ± | GOP/s, ratio: fbgemm | oneDNN | fp32")
    for label, shape in SHAPES.items():
        inputs, channels = shape
        floats = weights(shape, hot)
        packed = [pack(weight) for weight in floats]
        tensors = [torch.from_numpy(weight) for weight in floats]
        peers = {engine: [prepack(tensor, engine) for tensor in tensors] for engine in ENGINES}
        for batch in batches:
            x = np.random.default_rng(1).standard_normal((batch, inputs), np.float32)
            calls = {"int8": ours(x, packed, channels)}
            for engine in ENGINES:
                calls[engine] = dynamic(torch.from_numpy(x), peers[engine])
            calls["fp32"] = torch_fp32(torch.from_numpy(x), tensors)
            times = seconds(calls, budget_s)
            median = {name: statistics.median(values) for name, values in times.items()}
            rate = {name: 2e-9 * batch * inputs * channels / median[name] for name in calls}
            read = packed[0].nbytes / median["int8"] / 1e9
            beside = " | ".join(
                f"{rate[name]:7.1f} {rate['int8'] / rate[name]:5.2f}×"
                for name in (*ENGINES, "fp32")
            )
            print(
                f"{label:18} {batch:4} | {rate['int8']:9.1f} {read:7.1f}"
                f" {spread(times['int8']):4.0%} | {beside}",
                flush=True,
            )
            gops = {name: round(value, 1) for name, value in rate.items()}
            table.append({"shape": label, "rows": batch, "gop_per_s": gops})
    return table


def whole_model(budget_s: float) -> list[dict]:
    """All matrix products of a step, in order, over 30 layers of weights that differ (135 MB)."""
    layer_shapes = list(SHAPES.values())[:4]
    head_shape = SHAPES["head 576→49152"]
    rng = np.random.default_rng(2)

    def floats(shape: tuple[int, int]) -> np.ndarray:
        return rng.standard_normal((shape[1], shape[0]), np.float32)

    *flat, head = [pack(floats(shape)) for shape in layer_shapes * LAYERS + [head_shape]]
    layers = [flat[first : first + 4] for first in range(0, len(flat), 4)]
    others = {
        engine: [
            [prepack(torch.from_numpy(floats(s)), engine) for s in layer_shapes]
            for _ in range(LAYERS)
        ]
        for engine in ENGINES
    }
    other_head = {e: prepack(torch.from_numpy(floats(head_shape)), e) for e in ENGINES}
    table = []
    print("\nwhole model, matrix products and rounding only (no attention, no norms)")
    for batch, sampled in ((1, 1), (8, 8), (32, 32), (512, 1)):
        xs = [rng.standard_normal((batch, inputs), np.float32) for inputs, _ in layer_shapes]
        rows = [QuantizedRows.empty(batch, weight) for weight in layers[0]]
        outs = [np.empty((batch, channels), np.float32) for _, channels in layer_shapes]
        logits = np.empty((sampled, head_shape[1]), np.float32)
        tensors = [torch.from_numpy(x) for x in xs]

        def step(xs=xs, rows=rows, outs=outs, logits=logits, sampled=sampled) -> None:
            for layer in layers:
                for x, row, weight, out in zip(xs, rows, layer, outs, strict=True):
                    quantize_rows(x, row)
                    multiply(row, weight, out)
            last = rows[0].first(sampled)
            quantize_rows(xs[0][:sampled], last)
            multiply(last, head, logits)

        def other_step(engine, tensors=tensors, sampled=sampled) -> None:
            for layer in others[engine]:
                for x, weight in zip(tensors, layer, strict=True):
                    torch.ops.quantized.linear_dynamic(x, weight, False)
            torch.ops.quantized.linear_dynamic(tensors[0][:sampled], other_head[engine], False)

        calls: dict[str, Callable[[], None]] = {"int8": step}
        for engine in ENGINES:
            calls[engine] = partial(other_step, engine)
        times = seconds(calls, budget_s)
        median = {name: statistics.median(values) for name, values in times.items()}
        read = sum(w.nbytes for layer in layers for w in layer) + head.nbytes
        beside = ", ".join(
            f"{name} {median[name] * 1e3:.2f} ms ({median[name] / median['int8']:.2f}×)"
            for name in ENGINES
        )
        print(
            f"{'prefill' if batch == 512 else 'decode':7} {batch:4} rows:"
            f" {median['int8'] * 1e3:7.2f} ms ±{spread(times['int8']):.0%}"
            f" (fastest {min(times['int8']) * 1e3:.2f}), {batch / median['int8']:7.0f} tokens/s,"
            f" {read / median['int8'] / 1e9:5.1f} GB/s; {beside}",
            flush=True,
        )
        milliseconds = {name: round(value * 1e3, 2) for name, value in median.items()}
        table.append({"rows": batch, "sampled": sampled, "cpu_ms": milliseconds})
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the int8 matrix products.")
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--budget-s", type=float, default=0.25, help="time for one row of a table")
    parser.add_argument("--rows", type=int, nargs="*", default=BATCHES)
    parser.add_argument(
        "--hot", action="store_true", help="keep one copy of a weight in the caches"
    )
    parser.add_argument("--skip-shapes", action="store_true")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
    started = time.perf_counter()
    bytes_per_s, operations_per_s = limits(options.budget_s)
    print(
        f"level {cpu_levels()[0].value}, torch {torch.backends.cpu.get_cpu_capability()}, core"
        f" {options.core}, load average {os.getloadavg()[0]:.1f}; kernels ready in"
        f" {time.perf_counter() - started - options.budget_s:.1f} s\n"
        f"limits: one core reads {bytes_per_s / 1e9:.1f} GB/s; a tile in L1 does"
        f" {operations_per_s / 1e9:.0f} GOP/s\n"
    )
    shapes = [] if options.skip_shapes else by_shape(options.rows, options.budget_s, options.hot)
    results = {
        "level": cpu_levels()[0].value,
        "read_gb_per_s": round(bytes_per_s / 1e9, 1),
        "tile_gop_per_s": round(operations_per_s / 1e9, 1),
        "shapes": shapes,
        "steps": whole_model(options.budget_s * 4),
    }
    print(f"\nkept in {result.write(f'int8_gemm_{cpu_levels()[0].value}', results)}")


if __name__ == "__main__":
    main()
