"""Time of the router's own work per request: no network, no workers, one core.

    .venv/bin/python benchmarks/router.py                 all cases
    .venv/bin/python benchmarks/router.py --cases mixed_1000 mixed_1000_all

A fleet is kept under a steady load: each request is routed, gets its first token, is chosen a
decode worker if it was split, and is settled when as many newer ones are open as `open_requests`
says; workers report in turn, `reports` for each request. Times are CPU times of the thread, so that
a busy machine does not blur them. Cases of 200 and 1,000 workers with "_all" in their names predict
for every worker, as is done for up to 64; in those with "_hot" each worker has the same long prefix
of every prompt.
"""

import argparse
import gc
import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from support import result as results

from antiphon.core.kv import BlockKeys
from antiphon.core.router import Router, RouterLimits
from antiphon.perf import DEFAULT_LINK_TIME, DEFAULT_STEP_TIME, FittedPhaseTime
from antiphon.types import (
    BlockKey,
    Incarnation,
    KvDump,
    KvShape,
    LeaseId,
    ModelInfo,
    Offer,
    Request,
    RequestId,
    Role,
    Route,
    RouterConfig,
    SamplingParams,
    Tier,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
    WorkerReported,
    WorkerView,
)

PAGES, PAGE_TOKENS = 20_000, 16
REQUESTS, WARM_UP = 2000, 1000


@dataclass(frozen=True)
class Case:
    """One fleet and policy. `reports`: workers that report for each request that comes."""

    name: str
    prefill: int = 0
    decode: int = 0
    mixed: int = 0
    policy: str = "slo"
    open_requests: int = 1024
    reports: int = 2
    all: bool = False
    """Predict for each worker, however many there are."""
    hot: bool = False
    """Each worker has told that it has the beginning of all prompts."""


CASES = (
    Case("mixed_1", mixed=1, open_requests=32),
    Case("split_1_1", prefill=1, decode=1, open_requests=32),
    Case("mixed_16", mixed=16),
    Case("mixed_64", mixed=64),
    Case("mixed_200", mixed=200),
    Case("mixed_200_all", mixed=200, all=True),
    Case("mixed_1000", mixed=1000, open_requests=4096),
    Case("mixed_1000_all", mixed=1000, open_requests=4096, all=True),
    Case("mixed_1000_hot", mixed=1000, open_requests=4096, hot=True),
    Case("split_100_100", prefill=100, decode=100),
    Case("split_500_500", prefill=500, decode=500, open_requests=4096),
    Case("split_24_40", prefill=24, decode=40),
    Case("all_roles_64", prefill=16, decode=32, mixed=16),
    Case("all_roles_64_crowded", prefill=16, decode=32, mixed=16, open_requests=4096),
    Case("mixed_64_round_robin", mixed=64, policy="round-robin"),
    Case("mixed_64_least_loaded", mixed=64, policy="least-loaded"),
    Case("mixed_64_random", mixed=64, policy="random"),
)


def fleet(case: Case) -> list[WorkerInfo]:
    model = ModelInfo(
        name="none",
        identity=bytes(32),
        numerics="none",
        vocab_size=50_000,
        context_len=32_768,
        eos_token_ids=(),
        kv_bytes_per_token=23_040,
    )
    roles = [Role.PREFILL] * case.prefill + [Role.DECODE] * case.decode + [Role.MIXED] * case.mixed
    return [
        WorkerInfo(
            id=WorkerId(f"{role}-{number}"),
            incarnation=Incarnation(f"{role}-{number}"),
            model=model,
            max_model_len=32_768,
            role=role,
            kv=KvShape(
                layout="none",
                page_tokens=PAGE_TOKENS,
                block_tokens=64,
                page_bytes=PAGE_TOKENS * 23_040,
                pages=PAGES,
            ),
        )
        for number, role in enumerate(roles)
    ]


def requests(draw: random.Random) -> Iterator[Request]:
    prompt = (0,) * 2048
    for number in range(REQUESTS + WARM_UP):
        yield Request(
            id=RequestId(f"r{number}"),
            prompt=prompt[: draw.randint(16, 2048)],
            sampling=SamplingParams(max_tokens=256, seed=number),
        )


def report_of(worker: WorkerInfo, case: Case, steps: int) -> WorkerView:
    running = case.open_requests // (case.prefill + case.decode + case.mixed)
    return WorkerView(
        running=running,
        waiting=0,
        free_pages=PAGES // 2,
        held_pages=PAGES // 2,
        cached_pages=0,
        total_pages=PAGES,
        peak_pages=PAGES // 2,
        prefix_queried_tokens_total=0,
        prefix_hit_tokens_total=0,
        preemptions_total=0,
        steps_total=steps * 10,
        computed_tokens_total=steps * 10 * running,
        waiting_tokens=500,
        running_sequences=running,
        context_tokens=running * 800,
        busy_s_total=steps * 0.4,
    )


@lru_cache(maxsize=1)
def hot_blocks() -> KvDump:
    """The first half of the longest prompt."""
    keys: list[BlockKey] = []
    made = BlockKeys(identity=bytes(32), numerics="none", block_tokens=64)
    made.extend(keys, (0,) * 1024, 16)
    blocks = tuple((key, Tier.DEVICE) for key in keys)
    return KvDump(next=0, begins=True, ends=True, blocks=blocks)


def offer_of(owner: WorkerInfo, request: Request) -> Offer:
    assert owner.kv
    return Offer(
        request=request.id,
        attempt=1,
        lease=LeaseId("none"),
        ttl_s=10.0,
        owner=owner.id,
        incarnation=owner.incarnation,
        kv=owner.kv,
        numerics=owner.model.numerics,
        pages=(),
        sequences=(),
    )


def percentiles(name: str, times_s: list[float]) -> dict[str, float]:
    if not times_s:
        return {}
    ordered = sorted(times_s)
    return {
        f"{name}_p50_us": round(ordered[len(ordered) // 2] * 1e6, 1),
        f"{name}_p99_us": round(ordered[int(0.99 * len(ordered))] * 1e6, 1),
    }


def measure(case: Case) -> dict[str, float]:
    infos = fleet(case)
    by_id = {info.id: info for info in infos}
    router = Router(
        RouterConfig(policy=case.policy, ttft_s=10.0),
        times=FittedPhaseTime(step_time=DEFAULT_STEP_TIME),
        transfer=DEFAULT_LINK_TIME,
        kv_bytes_per_token=23_040,
        limits=RouterLimits(most_predicted=10**6) if case.all else RouterLimits(),
    )
    for info in infos:
        router.observe(WorkerJoined(info), 0.0)
        if case.hot:
            router.heard_kv(info.id, info.incarnation, hot_blocks(), 0.0)
    draw = random.Random(case.name)
    times: dict[str, list[float]] = {"choose": [], "choose_decode": [], "observe": []}
    now, held, number = 0.0, 0, 0
    opened: deque[RequestId] = deque()
    gc.collect()
    gc.freeze()

    def timed(name: str, begin: float) -> None:
        if number >= WARM_UP:
            times[name].append(time.thread_time() - begin)

    for number, request in enumerate(requests(draw)):
        begin = time.thread_time()
        answer = router.choose(request, now)
        timed("choose", begin)
        if isinstance(answer, Route):
            opened.append(request.id)
            router.prefilled(request.id, now)
            if answer.prefill is not None:
                offer = offer_of(by_id[answer.prefill], request)
                begin = time.thread_time()
                router.choose_decode(offer, request, now)
                timed("choose_decode", begin)
        else:
            held += 1
        while len(opened) > case.open_requests:
            router.settled(opened.popleft(), now)
        for turn in range(case.reports):
            info = infos[(number * case.reports + turn) % len(infos)]
            event = WorkerReported(info.id, report_of(info, case, number))
            begin = time.thread_time()
            router.observe(event, now)
            timed("observe", begin)
        now += 1e-3
    row: dict[str, float] = {"held_share": round(held / (REQUESTS + WARM_UP), 3)}
    for name, measured in times.items():
        row |= percentiles(name, measured)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in CASES]
    parser.add_argument("--cases", nargs="+", choices=names, metavar="NAME", help="these only")
    options = parser.parse_args()
    wanted = options.cases or names
    table = {case.name: measure(case) for case in CASES if case.name in wanted}
    columns = list(dict.fromkeys(column for row in table.values() for column in row))
    print(f"{'case':24}" + "".join(f"{column:>22}" for column in columns))
    for name, row in table.items():
        print(f"{name:24}" + "".join(f"{row.get(column, '-'):>22}" for column in columns))
    if options.cases:
        return
    print(f"\nwritten to {results.write('router', table)}")


if __name__ == "__main__":
    main()
