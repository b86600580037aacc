"""How fast the engine computes SmolLM2: prefill of 512 tokens, decode of 1 and of 8 sequences.

    taskset -c 0 python benchmarks/engine_smoke.py --threads 1

Prints one JSON object: medians, in tokens per second and milliseconds per step, and how long the
import, loading the weights and the first pass (with kernels from the cache or not) took.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

STARTED = time.perf_counter()

import numpy as np  # noqa: E402
import torch  # noqa: E402

from antiphon.checkpoint import open_checkpoint, resolve  # noqa: E402
from antiphon.engine import KvMemory, layout_of, load_llama, numerics_id  # noqa: E402
from antiphon.engine.batch import Batch, PageTable, Run  # noqa: E402

PROMPT = 512
SEQUENCES = 8
STEPS = 16


def timed(call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("int8", "fp32"), default="int8")
    parser.add_argument("--page-tokens", type=int, default=16)
    parser.add_argument("--cache-dir", type=Path, default=Path.home() / ".cache/antiphon")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    import_s = time.perf_counter() - STARTED

    started = time.perf_counter()
    checkpoint = open_checkpoint(resolve("smollm2-135m"))
    model = load_llama(checkpoint, dtype=options.dtype, cache_dir=options.cache_dir)
    layout = layout_of(checkpoint.spec, options.page_tokens)
    pages = -(-(PROMPT + STEPS) // options.page_tokens)
    memory = KvMemory(layout, SEQUENCES * pages)
    load_s = time.perf_counter() - started

    chance = np.random.default_rng(0)
    tokens = chance.integers(0, checkpoint.spec.vocab_size, (SEQUENCES, PROMPT + STEPS))
    tables = [PageTable() for _ in range(SEQUENCES)]
    for number, table in enumerate(tables):
        table.extend(0, range(number * pages, (number + 1) * pages))

    def step(sequences: int, start: int, count: int) -> None:
        runs = [
            Run(
                tokens=tokens[number, start : start + count],
                start=start,
                table=tables[number],
                sampled=True,
            )
            for number in range(sequences)
        ]
        model.forward(Batch.of(runs, layout), memory)

    first_s = timed(lambda: step(1, 0, 8))
    prefill_s = statistics.median(timed(lambda: step(1, 0, PROMPT)) for _ in range(3))
    step(SEQUENCES, 0, PROMPT)
    decode_s = {
        sequences: statistics.median(
            timed(lambda n=sequences, k=k: step(n, PROMPT + k, 1)) for k in range(STEPS)
        )
        for sequences in (1, SEQUENCES)
    }
    report = {
        "numerics_id": numerics_id(options.dtype),
        "threads": options.threads,
        "page_tokens": options.page_tokens,
        "import_s": import_s,
        "load_s": load_s,
        "first_pass_s": first_s,
        "prefill_tokens_per_s": PROMPT / prefill_s,
        "decode_step_ms": {str(n): 1e3 * s for n, s in decode_s.items()},
        "decode_tokens_per_s": {str(n): n / s for n, s in decode_s.items()},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
