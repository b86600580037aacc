"""The forecast of memory, against brute force and against what then happens."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.scheduler.admission import DeferReason, Load, peak_pages
from antiphon.sim import ConstantStepTime, ScriptedEngine, ShadowKv, Submit, run_worker
from antiphon.testing.strategies import WorkerSetup
from antiphon.types import KvConfig, Request, RequestId, SamplingParams, SchedulerConfig

LOADS = st.lists(
    st.builds(Load, st.integers(1, 20), st.integers(0, 10), st.integers(0, 7)), max_size=6
)


def true_peak(loads: list[Load], shared: int, page_tokens: int) -> int:
    """Pages in use at every step, counted one by one."""
    peak = shared + sum(load.own_pages for load in loads)
    for step in range(max((load.life_steps for load in loads), default=0) + 1):
        used = shared
        for load in loads:
            if load.life_steps >= step:
                grown = max(0, step - min(load.slack_tokens, page_tokens - 1))
                used += load.own_pages + -(-grown // page_tokens)
        peak = max(peak, used)
    return peak


@given(LOADS, st.integers(0, 5), st.sampled_from([1, 2, 4, 8]))
def test_the_forecast_is_never_too_low_and_less_than_a_page_a_sequence_too_high(
    loads: list[Load], shared: int, page_tokens: int
) -> None:
    peak = peak_pages(loads, shared_pages=shared, page_tokens=page_tokens)
    true = true_peak(loads, shared, page_tokens)
    assert true <= peak <= true + len(loads)
    if page_tokens == 1:
        assert peak == true


def request(id: str, prompt: int, max_tokens: int, n: int = 1, first: int = 1) -> Request:
    return Request(
        id=RequestId(id),
        prompt=(first,) * prompt,
        sampling=SamplingParams(n=n, max_tokens=max_tokens, seed=0),
    )


def setup(**changes) -> WorkerSetup:
    facts = {"max_num_seqs": 8, "max_batched_tokens": 32, "reserve_fraction": 0.0}
    pages, page_tokens = changes.pop("pages", 16), changes.pop("page_tokens", 4)
    return WorkerSetup(
        config=SchedulerConfig(**(facts | changes)),
        kv=KvConfig(page_tokens=page_tokens, block_tokens=4),
        pages=pages,
    )


@settings(max_examples=80, deadline=None)
@given(
    st.integers(2, 20),
    st.lists(st.tuples(st.integers(0, 10), st.integers(1, 40)), min_size=1, max_size=10),
    st.sampled_from([1, 2, 4]),
    st.integers(30, 80),
    st.integers(3, 16),
)
def test_nobody_is_preempted_where_lengths_come_out_as_predicted(
    max_tokens: int,
    arrivals: list[tuple[int, int]],
    page_tokens: int,
    memory_tokens: int,
    budget: int,
) -> None:
    worker = setup(
        pages=-(-memory_tokens // page_tokens), page_tokens=page_tokens, max_batched_tokens=budget
    ).build()
    stimuli = [
        Submit(at * 0.1, request(f"r{number}", prompt, max_tokens, first=1 + number % 3))
        for number, (at, prompt) in enumerate(arrivals)
        if prompt + max_tokens <= memory_tokens
    ]
    engine = ScriptedEngine(lambda *_: 5, ConstantStepTime(0.05), ShadowKv(page_tokens))
    run_worker(worker, engine, stimuli)
    assert worker.view(1e9).preemptions_total == 0


def test_a_hold_says_why() -> None:
    worker = setup(max_num_seqs=1).build()
    worker.add(request("a", 4, 4), 0.0)
    worker.add(request("b", 4, 4), 0.0)
    worker.step(0.0)
    assert worker.deferred and worker.deferred.reason is DeferReason.SEQUENCES
    assert worker.deferred.message == "1 sequences run, 1 more exceed 1"

    worker = setup(max_batched_tokens=8).build()
    worker.add(request("a", 10, 4), 0.0)
    worker.add(request("b", 4, 4), 0.0)
    worker.step(0.0)
    assert worker.deferred and worker.deferred.reason is DeferReason.BUDGET
    assert "10 tokens fill the next step" in worker.deferred.message

    worker = setup().build()
    worker.add(request("a", 16, 30), 0.0)
    worker.add(request("b", 8, 30), 0.0)
    worker.step(0.0)
    assert worker.deferred and worker.deferred.reason is DeferReason.PEAK
    assert "of 16 usable" in worker.deferred.message


def test_what_is_short_lived_by_experience_starts_though_its_limit_would_not_fit() -> None:
    """The Past-Future idea: finished lengths, not limits, decide."""

    def started(history: int) -> int:
        worker = setup().build()
        for number in range(history):
            worker.add(request(f"h{number}", 4, 2), 0.0)
            run_to_end(worker)
        worker.add(request("a", 12, 40), 0.0)
        worker.add(request("b", 12, 40, first=2), 0.0)
        worker.step(0.0)
        return worker.view(0.0).running

    def run_to_end(worker) -> None:
        engine = ScriptedEngine(lambda *_: 5)
        while plan := worker.step(0.0):
            worker.complete(plan, engine.forward(plan), 0.0)

    assert started(history=0) == 1
    assert started(history=3) == 2


def test_a_shared_prefix_is_counted_once() -> None:
    worker = setup(pages=24, max_batched_tokens=64).build()
    engine = ScriptedEngine(lambda *_: 5)
    worker.add(request("a", 41, 12), 0.0)
    plan = worker.step(0.0)
    assert plan is not None
    worker.complete(plan, engine.forward(plan), 0.0)
    worker.add(request("b", 41, 12), 0.0)
    worker.add(request("c", 41, 12), 0.0)
    worker.step(0.0)
    view = worker.view(0.0)
    assert view.running == 3 and view.held_pages < 20
    assert view.peak_pages <= 24


def test_pages_in_use_now_hold_too() -> None:
    """Where the forecast is too low, nobody is promised pages that are not there."""
    worker = setup(pages=8).build()
    engine = ScriptedEngine(lambda *_: 5)
    worker.add(request("a", 20, 2), 0.0)
    plan = worker.step(0.0)
    assert plan is not None
    worker.complete(plan, engine.forward(plan), 0.0)
    worker._admission.short_of_memory = lambda *_: None  # type: ignore[method-assign]
    worker.add(request("b", 20, 2, first=2), 0.0)
    worker.step(0.0)
    assert worker.deferred and worker.deferred.reason is DeferReason.PAGES
    assert worker.deferred.message == "5 pages are needed and 2 are available"
