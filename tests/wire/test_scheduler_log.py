"""The log of a worker that fetches from a store: written, read, and decided again."""

import io
from typing import cast

from hypothesis import HealthCheck, given, settings

from antiphon.core.recorded_run import Setup, fresh_machines
from antiphon.core.recorder import recorded, replay
from antiphon.core.scheduler import SCHEDULER, SCHEDULER_METHODS, Scheduler
from antiphon.sim import (
    ScriptedEngine,
    ShadowKv,
    ShadowStore,
    StoreSide,
    Submit,
    hashed_script,
    run_worker,
)
from antiphon.testing.strategies import MODEL, VOCAB_SIZE, WorkerSetup, losses, workloads
from antiphon.types import (
    Config,
    Fetched,
    KvConfig,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    WorkerId,
)
from antiphon.wire import DecisionLogWriter, read_decision_log

CONFIG = Config(
    kv=KvConfig(page_tokens=2, block_tokens=4),
    scheduler=SchedulerConfig(max_num_seqs=4, max_batched_tokens=16),
)
PAGES, MAX_MODEL_LEN = 40, 64
SETUP = Setup(
    program="0.0.1",
    config=CONFIG,
    pages=PAGES,
    model=MODEL,
    max_model_len=MAX_MODEL_LEN,
    worker=WorkerId("w0"),
)
WORKER = WorkerSetup(
    config=CONFIG.scheduler, kv=CONFIG.kv, pages=PAGES, max_model_len=MAX_MODEL_LEN
)


def filled(workload) -> ShadowStore:
    """What another worker put when it ran the same."""
    store, memory = ShadowStore(), ShadowKv(CONFIG.kv.page_tokens)
    side = StoreSide(store, memory)
    engine = ScriptedEngine(hashed_script(VOCAB_SIZE), shadow=memory)
    run_worker(WORKER.build(side.listen), engine, workload, store=side)
    return store


def logged(workload, lost: list[frozenset[int]]) -> bytes:
    file, losing = io.BytesIO(), iter(lost)
    write = DecisionLogWriter(file)
    write.begin(SETUP)
    scheduler = cast(Scheduler, fresh_machines(SETUP)[SCHEDULER])
    memory = ShadowKv(CONFIG.kv.page_tokens)
    side = StoreSide(filled(workload), memory, lost=lambda _: next(losing, ()))
    run_worker(
        recorded(SCHEDULER, scheduler, SCHEDULER_METHODS, write),
        ScriptedEngine(hashed_script(VOCAB_SIZE), shadow=memory),
        workload,
        store=side,
    )
    return file.getvalue()


def replayed(log: bytes) -> tuple[list, list]:
    """The differences, and what was said of fetches."""
    run = read_decision_log(io.BytesIO(log), "a.log")
    entries = list(run.entries)
    said = [event for one in entries if one.method == "fetched" for event in one.decision]  # pyright: ignore
    return list(replay(entries, fresh_machines(run.setup))), said


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workloads(fetching=True), losses())
def test_a_log_with_fetches_replays_to_the_same_decisions(
    workload, lost: list[frozenset[int]]
) -> None:
    differences, _ = replayed(logged(workload, lost))
    assert differences == []


def test_what_came_of_a_fetch_is_a_fact_that_decisions_follow_from() -> None:
    asked = Request(
        id=RequestId("r1"),
        prompt=tuple(range(1, 14)),
        sampling=SamplingParams(max_tokens=4, seed=1),
    )
    workload = [Submit(0.0, asked, 12)]
    log = logged(workload, [])
    differences, (fetched, _) = replayed(log)
    assert isinstance(fetched, Fetched) and fetched.fetched_tokens == 12 and not differences
    tampered = log.replace(b'"good":[true,true,true]', b'"good":[true,false,true]')
    assert tampered != log
    differences, _ = replayed(tampered)
    assert differences[0].method == "fetched" and differences[0].path == "[0].fetched_tokens"
    assert differences[0].replayed == 4
