"""Time of the scheduler's own work per step: no engine, no I/O, one core.

    PYTHONPATH=src python benchmarks/scheduler.py

Each case runs thousands of steps of the real scheduler; the "engine" answers at once and its time
is not counted. Times are CPU times of the thread, so that a busy machine does not blur them. The
goal is 1 ms for step + complete with 256 running sequences.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from support import result as results

from antiphon.core.scheduler import Scheduler
from antiphon.types import (
    Admitted,
    KvConfig,
    KvGroup,
    ModelInfo,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    SchedulerConfig,
    StepPlan,
    StepResult,
)

MODEL = ModelInfo(
    name="none",
    identity=b"benchmark".ljust(32),
    numerics="none",
    vocab_size=50_000,
    context_len=32_768,
    eos_token_ids=(),
    kv_bytes_per_token=0,
)


@dataclass(frozen=True)
class Case:
    """One load: how many sequences are kept running, and of what shape."""

    name: str
    running: int
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    page_tokens: int = 16
    max_batched_tokens: int = 512
    kv_tokens: int = 1_000_000
    shared_prefix_tokens: int = 0
    groups: tuple[KvGroup, ...] = (KvGroup(),)
    steps: int = 1500
    warm_up_steps: int = 600


CASES = (
    Case("decode_256", 256, (64, 256), (4000, 8000)),
    Case("decode_256_token_attention", 256, (64, 256), (4000, 8000), page_tokens=1),
    Case("decode_256_turnover", 256, (32, 128), (100, 400)),
    Case("decode_64", 64, (64, 256), (4000, 8000)),
    Case("prefill_heavy", 256, (1000, 4000), (2, 16), max_batched_tokens=8192, steps=1000),
    Case(
        "shared_prefix",
        256,
        (16, 64),
        (100, 400),
        shared_prefix_tokens=2048,
    ),
    Case("memory_full", 256, (64, 256), (100, 800), kv_tokens=60_000),
    Case("windows_64", 64, (2000, 4000), (100, 400), groups=(KvGroup(), KvGroup(1024, 6))),
)


def requests(case: Case) -> Iterator[Request]:
    draw = random.Random(case.name)
    prefix = tuple(draw.randrange(MODEL.vocab_size) for _ in range(case.shared_prefix_tokens))
    number = 0
    while True:
        own = draw.randint(*case.prompt_tokens)
        yield Request(
            id=RequestId(f"r{number}"),
            prompt=prefix + tuple(draw.randrange(MODEL.vocab_size) for _ in range(own)),
            sampling=SamplingParams(max_tokens=draw.randint(*case.output_tokens), seed=number),
        )
        number += 1


def answer(plan: StepPlan, draw: Callable[[], int]) -> StepResult:
    samples = tuple(
        Sample(chunk.request.id, sequence, draw())
        for chunk in plan.chunks
        for sequence in chunk.samples
    )
    return StepResult(number=plan.number, samples=samples)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(case: Case) -> dict[str, float | int]:
    scheduler = Scheduler(
        config=SchedulerConfig(
            max_num_seqs=case.running, max_batched_tokens=case.max_batched_tokens
        ),
        kv=KvConfig(page_tokens=case.page_tokens),
        pages=case.kv_tokens // case.page_tokens * sum(group.pages for group in case.groups),
        model=replace(MODEL, kv_groups=case.groups),
        max_model_len=MODEL.context_len,
    )
    source, tokens = requests(case), random.Random(1)
    step_s: list[float] = []
    complete_s: list[float] = []
    sequences: list[int] = []
    now = 0.0
    gc.collect()
    gc.freeze()
    for number in range(case.warm_up_steps + case.steps):
        while scheduler.view(now).waiting < 4:
            assert isinstance(scheduler.add(next(source), now), Admitted)
        begin = time.thread_time()
        plan = scheduler.step(now)
        middle = time.thread_time()
        assert plan is not None
        made = answer(plan, lambda: tokens.randrange(MODEL.vocab_size))
        again = time.thread_time()
        scheduler.complete(plan, made, now)
        end = time.thread_time()
        now += 0.02
        if number >= case.warm_up_steps:
            step_s.append(middle - begin)
            complete_s.append(end - again)
            sequences.append(len(plan.chunks))
    both = [one + other for one, other in zip(step_s, complete_s, strict=True)]
    view = scheduler.view(now)
    return {
        "chunks_mean": round(sum(sequences) / len(sequences), 1),
        "step_p50_ms": round(percentile(step_s, 0.5) * 1e3, 3),
        "step_p99_ms": round(percentile(step_s, 0.99) * 1e3, 3),
        "complete_p50_ms": round(percentile(complete_s, 0.5) * 1e3, 3),
        "complete_p99_ms": round(percentile(complete_s, 0.99) * 1e3, 3),
        "both_p50_ms": round(percentile(both, 0.5) * 1e3, 3),
        "both_p99_ms": round(percentile(both, 0.99) * 1e3, 3),
        "preemptions": view.preemptions_total,
    }


def main() -> None:
    table = {case.name: measure(case) for case in CASES}
    columns = list(next(iter(table.values())))
    print(f"{'case':28}" + "".join(f"{column:>17}" for column in columns))
    for name, row in table.items():
        print(f"{name:28}" + "".join(f"{row[column]:>17}" for column in columns))
    print(f"\nwritten to {results.write('scheduler', table)}")


if __name__ == "__main__":
    main()
