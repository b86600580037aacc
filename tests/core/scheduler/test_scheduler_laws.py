"""The numbered laws on whole workloads in virtual time, and proof that they find faulty parts."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.sim import (
    Cancel,
    ConstantStepTime,
    RunLog,
    ScriptedEngine,
    ShadowStore,
    StoreSide,
    Submit,
    hashed_script,
    run_worker,
)
from antiphon.sim.law import check_pages
from antiphon.testing import laws
from antiphon.testing.strategies import (
    EOS,
    VOCAB_SIZE,
    WorkerSetup,
    losses,
    worker_setups,
    workloads,
)
from antiphon.types import (
    Admitted,
    Fetched,
    FinishReason,
    Request,
    SequenceEnded,
    StepPlan,
    StepResult,
    WorkerView,
)

SETTINGS = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SCRIPT = hashed_script(VOCAB_SIZE)
Workload = Sequence[Submit | Cancel]


def run(
    setup: WorkerSetup,
    workload: Workload,
    *,
    store: ShadowStore | None = None,
    lost: Sequence[frozenset[int]] = (),
    store_side: type[StoreSide] = StoreSide,
    put_s: float = 0.01,
    late: Sequence[float] = (),
    groups: int = 1,
) -> RunLog:
    """One run under all laws that can be read off it.

    `lost`: the blocks, by number, that are lost in the first fetches, one set a fetch; `late`: how
    much later than usual their last layers come.
    """
    shadow, losing, delays = setup.shadow(), iter(lost), iter(late)
    store = ShadowStore() if store is None else store
    side = store_side(
        store,
        shadow,
        lost=lambda _: next(losing, ()),
        late=lambda _: next(delays, 0.0),
        put_s=put_s,
        groups=groups,
    )
    worker = setup.build(side.listen)
    engine = ScriptedEngine(SCRIPT, ConstantStepTime(0.02), shadow)
    log = run_worker(worker, engine, workload, store=side, max_actions=20_000)
    for check in checks(setup, workload, log, worker.view(1e9)):
        check()
    return log


def checks(
    setup: WorkerSetup, workload: Workload, log: RunLog, end: WorkerView
) -> list[Callable[[], None]]:
    """Every law that can be read off a run, one by one."""
    submits = [item for item in workload if isinstance(item, Submit)]
    requests = [item.request for item in submits]
    config = setup.config
    limits = {"max_tokens": config.max_batched_tokens, "max_sequences": config.max_num_seqs}
    return [
        lambda: laws.check_conservation(log, requests),
        lambda: laws.check_tokens(log, requests),
        lambda: laws.check_started(log, requests),
        lambda: laws.check_causality(log, {item.request.id: item.at for item in submits}),
        *(partial(laws.check_budget, plan, **limits) for _, plan in log.plans),
        *(partial(check_pages, view) for _, view in log.views),
        lambda: check_pages(end),
        lambda: laws.check_drained(end),
    ]


def alone(setup: WorkerSetup, request: Request, sequence: int) -> list[tuple[int, int]]:
    """(index, token) that the sequence must get: straight from the definition, no scheduler."""
    if sequence in request.done:
        return []
    sampling = request.sampling
    resumed = request.resumed[sequence] if request.resumed else ()
    longest = min(setup.max_model_len, setup.build().max_model_len)
    limit = min(sampling.max_tokens or 0, longest - len(request.prompt))
    stops = {*request.eos_token_ids, *sampling.stop_token_ids}
    tokens = list(resumed)
    if tokens and tokens[-1] in stops and len(tokens) >= sampling.min_tokens:
        return []
    while len(tokens) < limit:
        tokens.append(SCRIPT(request, sequence, len(tokens)))
        if tokens[-1] in stops and len(tokens) >= sampling.min_tokens:
            break
    return list(enumerate(tokens))[len(resumed) :]


@SETTINGS
@given(worker_setups(), workloads())
def test_i1_i2_i3_i4_i5_i6_i10_hold_under_aborts_and_deadlines(
    setup: WorkerSetup, workload: Workload
) -> None:
    run(setup, workload)


@SETTINGS
@given(worker_setups(), workloads(fetching=True), losses())
def test_i1_i2_i3_i4_i5_i6_i10_hold_beside_a_store_that_loses_blocks(
    setup: WorkerSetup, workload: Workload, lost: list[frozenset[int]]
) -> None:
    """Twice, beside one store: the second worker finds what the first has put."""
    store = ShadowStore()
    run(setup, workload, store=store, lost=lost)
    run(setup, workload, store=store, lost=lost)


@SETTINGS
@given(worker_setups(), workloads(patient=True, fetching=True), losses())
def test_i9_tokens_do_not_depend_on_what_the_store_has(
    setup: WorkerSetup, workload: Workload, lost: list[frozenset[int]]
) -> None:
    """vLLM 31210, Dynamo 5068: what was loaded and what was computed gave other tokens."""
    store = ShadowStore()
    check_alone(setup, workload, store=store)
    check_alone(setup, workload, store=store, lost=lost)


@SETTINGS
@given(worker_setups(), workloads(patient=True))
def test_i9_tokens_do_not_depend_on_neighbours_chunks_pages_or_preemption(
    setup: WorkerSetup, workload: Workload
) -> None:
    check_alone(setup, workload)


def check_alone(setup: WorkerSetup, workload: Workload, **beside: Any) -> None:
    """I9: whoever was taken got the tokens that its definition says. `beside`: as for `run`."""
    log = run(setup, workload, **beside)
    requests = [item.request for item in workload if isinstance(item, Submit)]
    for request in requests:
        if not isinstance(log.of(request.id)[0], Admitted):
            continue
        for sequence, tokens in laws.tokens_of(log, request).items():
            assert tokens == alone(setup, request, sequence)


def test_the_workloads_reach_what_they_are_for() -> None:
    """Preemption, prefix hits, refusals, forks, deadlines, fetches that bring much or not all: all
    happen, else laws are idle."""
    seen: set[str] = set()

    @settings(SETTINGS, max_examples=400, derandomize=True, database=None)
    @given(worker_setups(), workloads(fetching=True), losses())
    def look(setup: WorkerSetup, workload: Workload, lost: list[frozenset[int]]) -> None:
        log = run(setup, workload, lost=lost)
        seen.update(type(what).__name__ for _, what in log.happenings)
        seen.update(
            what.reason.value for _, what in log.happenings if isinstance(what, SequenceEnded)
        )
        seen.update("copy" for _, plan in log.plans if plan.copies)
        for _, what in log.happenings:
            if isinstance(what, Fetched):
                seen.update(["fetched"] * (what.fetched_tokens > 0))
                seen.update(["missing"] * (what.missing_tokens > 0))
        if log.views:
            seen.update("hit" for _ in range(log.views[-1][1].prefix_hit_tokens_total))

    look()
    wanted = {"Preempted", "Rejected", "Aborted", "Unknown", "copy", "hit", "fetched", "missing"}
    assert wanted | {FinishReason.STOP, FinishReason.LENGTH, FinishReason.DEADLINE} <= seen


def digest(setup: WorkerSetup, workload: Workload) -> str:
    store = ShadowStore()
    run(setup, workload, store=store)
    log = run(setup, workload, store=store)
    return blake2b(repr((log.happenings, log.plans, log.views)).encode()).hexdigest()


@settings(SETTINGS, max_examples=40)
@given(worker_setups(), workloads(fetching=True))
def test_i7_the_same_run_gives_the_same_bytes(setup: WorkerSetup, workload: Workload) -> None:
    assert digest(setup, workload) == digest(setup, workload)


def fixed_run() -> str:
    """A digest over many drawn runs, the same draws in every process."""
    total = blake2b()

    @settings(SETTINGS, max_examples=25, derandomize=True, database=None)
    @given(worker_setups(), workloads(fetching=True))
    def go(setup: WorkerSetup, workload: Workload) -> None:
        total.update(digest(setup, workload).encode())

    go()
    return total.hexdigest()


def test_i7_the_bytes_do_not_depend_on_the_process() -> None:
    here = Path(__file__)
    code = f"import {here.stem} as t; print(t.fixed_run())"
    digests = []
    for seed in ("1", "2"):
        paths = f"{here.parent}:{here.parents[3] / 'src'}"
        environment = dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=paths)
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.append(done.stdout.strip())
    assert digests[0] == digests[1]


class Recorder(ScriptedEngine):
    """Keeps the results."""

    def __init__(self, script: Callable) -> None:
        super().__init__(script, ConstantStepTime(0.02))
        self.results: list[StepResult] = []

    def forward(self, plan: StepPlan) -> StepResult:
        self.results.append(super().forward(plan))
        return self.results[-1]


def foreseen(setup: WorkerSetup, workload: Workload, ends_at: int) -> bool:
    """Whether plans differ between two worlds before anything was seen that differs.

    In one world sequences end after `ends_at` tokens, in the other they do not.
    """

    def short(request: Request, sequence: int, index: int) -> int:
        return EOS if index >= ends_at else 1 + SCRIPT(request, sequence, index) % 5

    def long(request: Request, sequence: int, index: int) -> int:
        return 1 + SCRIPT(request, sequence, index) % 5

    engines = [Recorder(short), Recorder(long)]
    one, other = (run_worker(setup.build(), engine, workload) for engine in engines)
    for number, (plan, twin) in enumerate(zip(one.plans, other.plans, strict=False)):
        if plan != twin:
            return True
        if engines[0].results[number] != engines[1].results[number]:
            return False
    return False


@settings(SETTINGS, max_examples=60)
@given(worker_setups(), workloads(), st.integers(1, 10))
def test_i11_decisions_do_not_depend_on_the_true_output_length(
    setup: WorkerSetup, workload: Workload, ends_at: int
) -> None:
    assert not foreseen(setup, workload, ends_at)
