"""How fast a torch device computes steps, against what its memory allows, and against eager steps.

    .venv/bin/python benchmarks/device.py --device cuda              writes results/device.json
    .venv/bin/python benchmarks/device.py --device cpu --quick       to see it work; writes nothing

`decode-N`: a step of N sequences at a context of 512; `prefill`: a prompt of 512 tokens in one
step; `leave`, `come`: pages to shared memory and back. The limit of a decode is the time to read
the weights once, at the speed at which this script copies memory on the same device in the same
run. On CUDA each decode is measured with graphs and without.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import torch
from support import result

from antiphon.checkpoint import Checkpoint, open_checkpoint, resolve
from antiphon.engine import DeviceKv, DeviceLlama, device_title, load_on_device, open_device
from antiphon.engine.batch import Batch, PageTable, Run
from antiphon.engine.device.cuda_copies import PinnedMover
from antiphon.engine.device.device_kv import PlainMover
from antiphon.engine.device.device_llama import run_at_once
from antiphon.engine.kv_memory import KvDtype, layout_of

CONTEXT = 512
BATCHES = (1, 8, 64)
PAGE = 16
TRIES, QUICK_TRIES = 20, 2
COPIED = 2**28


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp16", "fp32"))
    parser.add_argument("--quick", action="store_true", help="few tries, small batches")
    options = parser.parse_args()
    device = open_device(options.device)
    checkpoint = open_checkpoint(resolve(options.model))
    model = load_on_device(checkpoint, device=device, dtype=options.dtype)
    tries = QUICK_TRIES if options.quick else TRIES
    batches = BATCHES[:2] if options.quick else BATCHES
    rows = dict(measured(model, checkpoint, device, tries, batches))
    for name, seconds in rows.items():
        print(f"{name:20} {seconds * 1e3:9.2f} ms")
    if not options.quick:
        document = {"device": device_title(device), "dtype": options.dtype, "seconds": rows}
        print(f"Kept in {result.write('device', document)}")
    return 0


def measured(
    model: DeviceLlama,
    checkpoint: Checkpoint,
    device: torch.device,
    tries: int,
    batches: tuple[int, ...],
) -> Iterator[tuple[str, float]]:
    """Rows of the table: name and seconds, the median of so many tries."""
    layout = layout_of(checkpoint.spec, PAGE, KvDtype.BF16)
    each = CONTEXT // PAGE + 1
    memory = DeviceKv(layout, each * max(batches), device)
    yield "weights, once", weights_once(model, device, tries)
    runs = [run_of(number, each) for number in range(max(batches))]
    prompt = Run(tokens=range(CONTEXT), start=0, table=runs[0].table, sampled=True)
    yield "prefill", timed(lambda: model.forward(Batch.of([prompt], layout), memory), device, tries)
    runners = {"": model._runner}
    if device.type == "cuda":
        runners[" eager"] = run_at_once
    for batch in batches:
        for kind, runner in runners.items():
            model._runner = runner
            step = Batch.of(runs[:batch], layout)
            yield f"decode-{batch}{kind}", timed(lambda: model.forward(step, memory), device, tries)  # noqa: B023
    mover = PinnedMover if device.type == "cuda" else PlainMover
    host = torch.zeros(each, layout.page_bytes, dtype=torch.uint8, device="cpu")
    there = memory.flat.view(torch.uint8).view(-1, layout.page_bytes)[:each]
    moved, pages = mover(there, host), torch.arange(each, device="cpu").numpy()
    yield f"leave {each} pages", timed(lambda: moved.to_host(pages), device, tries)
    yield f"come {each} pages", timed(lambda: moved.to_device(pages), device, tries)


def run_of(number: int, pages: int) -> Run:
    """One token behind a context."""
    table = PageTable()
    table.extend(0, list(range(number * pages, (number + 1) * pages)))
    return Run(tokens=[7], start=CONTEXT, table=table, sampled=True)


def weights_once(model: DeviceLlama, device: torch.device, tries: int) -> float:
    """The time to read the weights, at the speed of a copy that reads and writes."""
    source = torch.zeros(COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = timed(lambda: target.copy_(source), device, tries)
    layers = model._weights.layers
    linears = [
        one
        for layer in layers
        for one in (layer.qkv, layer.attention_out, layer.gate_up, layer.down)
    ]
    weights = [one.weight for one in linears if one is not None] + [model._weights.head.weight]
    return sum(one.nbytes for one in weights) * seconds / (2 * COPIED)


def timed(work: Callable[[], object], device: torch.device, tries: int) -> float:
    """The median of so many tries, after three that don't count."""
    times = []
    for _ in range(tries + 3):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[3:])


if __name__ == "__main__":
    sys.exit(main())
