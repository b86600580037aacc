"""Attention over paged KV memory on one core, against what the core reads and multiplies.

    PYTHONPATH=src python benchmarks/attention.py            # prints a table, writes the results
    PYTHONPATH=src python benchmarks/attention.py --quick    # pages of 16 only, nothing is written

SmolLM2-135M: 30 layers, 9 query and 3 key-value heads of 64. Rates count each key and value once
and a multiply-add as 2 operations. Limits are measured in the same run: the rate at which the core
reads one long array, and its fused multiply-adds from registers (bfloat16 pages are multiplied as
whole numbers, twice as many at a time). One pinned core; CPU time of the thread; the least of
several runs. Everything is measured again by a second process that compiles for AVX2 only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numba import njit
from support.result import write

from antiphon.engine import KvDtype, KvLayout, KvMemory
from antiphon.engine import lanes as simd
from antiphon.engine.attention import Geometry, attend, scratch_floats
from antiphon.engine.batch import Batch, PageTable, Run
from antiphon.engine.cpu_level import cpu_levels

LAYERS, HEADS, KV_HEADS, WIDTH = 30, 9, 3, 64
Spans = list[tuple[int, int]]
"""(first position, rows) of each sequence."""
CASES: dict[str, Spans] = {
    f"decode {count} x {context}": [(context - 1, 1)] * count
    for context in (544, 4096)
    for count in (1, 8, 32)
} | {
    "prefill 512": [(0, 512)],
    "prefill 2048": [(0, 2048)],
    "chunk of 512 at 4096": [(4096 - 512, 512)],
}
ALL_PAGES = ("decode 8 x 544", "decode 8 x 4096", "prefill 512")
"""Measured at every page size; the others in pages of 16."""
AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt,+sse4.2",
}


@njit(nogil=True)
def _read(words):
    """Sum of all words: as fast as one core reads."""
    total = 0
    for i in range(len(words)):
        total += words[i]
    return total


@njit(nogil=True)
def _six_chains(repeat, values):
    """6·`repeat` multiply-adds of 16 lanes in independent chains: enough to fill AVX2's units."""
    a = b = c = d = e = f = simd.load(values, 0)
    x = simd.load(values, 16)
    for _ in range(repeat):
        a, b, c = simd.fma(a, x, x), simd.fma(b, x, x), simd.fma(c, x, x)
        d, e, f = simd.fma(d, x, x), simd.fma(e, x, x), simd.fma(f, x, x)
    simd.store(values, 0, simd.add(simd.add(simd.add(a, b), simd.add(c, d)), simd.add(e, f)))


@njit(nogil=True)
def _twelve_chains(repeat, values):
    """12·`repeat` of them: what AVX-512 needs, and more than AVX2's registers hold."""
    a = b = c = d = e = f = g = h = i = j = k = m = simd.load(values, 0)
    x = simd.load(values, 16)
    for _ in range(repeat):
        a, b, c = simd.fma(a, x, x), simd.fma(b, x, x), simd.fma(c, x, x)
        d, e, f = simd.fma(d, x, x), simd.fma(e, x, x), simd.fma(f, x, x)
        g, h, i = simd.fma(g, x, x), simd.fma(h, x, x), simd.fma(i, x, x)
        j, k, m = simd.fma(j, x, x), simd.fma(k, x, x), simd.fma(m, x, x)
    left = simd.add(simd.add(simd.add(a, b), simd.add(c, d)), simd.add(e, f))
    right = simd.add(simd.add(simd.add(g, h), simd.add(i, j)), simd.add(k, m))
    simd.store(values, 0, simd.add(left, right))


def least_s(call: Callable[[], object], rounds: int) -> float:
    """CPU seconds of the fastest of `rounds` calls, after one that warms up."""
    call()
    times = []
    for _ in range(rounds):
        started = time.thread_time()
        call()
        times.append(time.thread_time() - started)
    return min(times)


def limits() -> dict[str, float]:
    """What the core can do at most."""
    words = np.ones(256 * 2**20 // 8, np.int64)
    values = np.linspace(0.1, 0.9, 32, dtype=np.float32)
    repeat = 10**6
    read_s = least_s(lambda: _read(words), 5)
    six_s = least_s(lambda: _six_chains(repeat, values), 5)
    twelve_s = least_s(lambda: _twelve_chains(repeat, values), 5)
    return {
        "read_gb_per_s": words.nbytes / read_s / 1e9,
        "fma_gflop_per_s": repeat * 16 * 2 * max(6 / six_s, 12 / twelve_s) / 1e9,
    }


def memory_of(layout: KvLayout, pages: int) -> KvMemory:
    """Pages of random numbers, all the same ones: filling gigabytes takes long."""
    memory = KvMemory(layout, pages)
    memory.tensor[0].normal_()
    memory.tensor[1:] = memory.tensor[0]
    return memory


def runs_of(spans: Spans, memory: KvMemory) -> list[Run]:
    """Sequences in pages that lie in no order."""
    free = np.random.default_rng(0).permutation(memory.pages).tolist()
    runs = []
    for start, count in spans:
        table = PageTable()
        wanted = -(-(start + count) // memory.layout.page_tokens)
        table.extend(0, [free.pop() for _ in range(wanted)])
        runs.append(Run(tokens=[0] * count, start=start, table=table, sampled=True))
    return runs


def measured(spans: Spans, memory: KvMemory, rounds: int) -> dict[str, float]:
    """Times and rates of one step's attention, and of making its batch."""
    layout = memory.layout
    runs = runs_of(spans, memory)
    batch, making_s = Batch.of(runs, layout), []
    for _ in range(20):
        started = time.perf_counter()
        Batch.of(runs, layout)
        making_s.append(time.perf_counter() - started)
    geometry = Geometry(HEADS, KV_HEADS, WIDTH, WIDTH, layout.page_tokens, layout.page_stride,
                        WIDTH**-0.5)  # fmt: skip
    rows = len(batch.tokens)
    qkv = torch.randn(rows, (HEADS + 2 * KV_HEADS) * WIDTH).numpy()
    output = torch.empty(rows, HEADS * WIDTH).numpy()
    scratch = torch.empty(scratch_floats(geometry)).numpy()

    def step() -> None:
        for layer in range(LAYERS):
            attend(
                qkv,
                output,
                memory.elements,
                batch.tables[0],
                batch.blocks,
                geometry,
                layer,
                0,
                scratch,
                (0, 1),
            )

    step_s = least_s(step, rounds)
    read = sum(start + count for start, count in spans) * layout.token_bytes
    seen = sum(sum(range(start + 1, start + count + 1)) for start, count in spans)
    return {
        "step_ms": 1e3 * step_s,
        "gb_per_s": read / step_s / 1e9,
        "gflop_per_s": 4 * WIDTH * HEADS * LAYERS * seen / step_s / 1e9,
        "make_batch_ms": 1e3 * statistics.median(making_s),
    }


def grid(page_sizes: tuple[int, ...]) -> Iterator[tuple[KvLayout, str, Spans]]:
    """Cases, those of one layout one after another."""
    for dtype in KvDtype:
        for page_tokens in page_sizes:
            layout = KvLayout(
                layers=LAYERS,
                kv_heads=KV_HEADS,
                head_width=WIDTH,
                page_tokens=page_tokens,
                dtype=dtype,
            )
            for name, spans in CASES.items():
                if page_tokens == 16 or name in ALL_PAGES:
                    yield layout, name, spans


def measure(page_sizes: tuple[int, ...]) -> dict[str, object]:
    """Limits and the grid on the calling thread; prints a line a case on stderr."""
    bounds = limits()
    report: dict[str, object] = {"instructions": cpu_levels()[0].value, "limits": bounds}
    print(report, file=sys.stderr)
    cases: list[dict[str, object]] = []
    memory: KvMemory | None = None
    for layout, name, spans in grid(page_sizes):
        if memory is None or memory.layout != layout:
            memory = None  # first give back the old one
            largest = CASES if layout.page_tokens == 16 else ALL_PAGES
            memory = memory_of(layout, max(pages_of(layout, CASES[case]) for case in largest))
        seen = measured(spans, memory, 5 if "8 x" in name or "1 x" in name else 2)
        case: dict[str, object] = {
            "case": name,
            "kv_dtype": layout.dtype.value,
            "page_tokens": layout.page_tokens,
        }
        case.update((key, round(value, 4)) for key, value in seen.items())
        cases.append(case)
        print(
            f"{name:22} {layout.dtype.value} pages of {layout.page_tokens:2}: "
            f"{seen['step_ms']:8.2f} ms  {seen['gb_per_s']:5.1f} GB/s "
            f"({seen['gb_per_s'] / bounds['read_gb_per_s']:4.0%} of reading)  "
            f"{seen['gflop_per_s']:6.1f} GFLOP/s "
            f"({seen['gflop_per_s'] / bounds['fma_gflop_per_s']:4.0%} of multiplying)  "
            f"batch {seen['make_batch_ms']:.3f} ms",
            file=sys.stderr,
        )
    return report | {"cases": cases}


def pages_of(layout: KvLayout, spans: Spans) -> int:
    """Pages that a case needs."""
    return sum(-(-(start + count) // layout.page_tokens) for start, count in spans)


def main() -> None:
    """Measure here, then again in a process that is held to AVX2."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="pages of 16 only; write nothing")
    parser.add_argument("--alone", action="store_true", help="this process only; JSON on stdout")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    reports = [measure((16,) if options.quick else (1, 16, 64))]
    if options.alone:
        print(json.dumps(reports[0]))
        return
    if reports[0]["instructions"] != "avx2":
        command = [sys.executable, __file__, "--alone", *(["--quick"] if options.quick else [])]
        held = subprocess.run(command, env=os.environ | AVX2, stdout=subprocess.PIPE, check=True)
        reports.append(json.loads(held.stdout))
    if not options.quick:
        print(write("attention", {"runs": reports}))


if __name__ == "__main__":
    main()
