"""`max_queue` counts those who find no place, not those who start in the next step."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.scheduler import Scheduler
from antiphon.sim import ScriptedEngine
from antiphon.testing.strategies import WorkerSetup
from antiphon.types import (
    Admitted,
    KvConfig,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
)


def scheduler(places: int, max_queue: int) -> Scheduler:
    """With so much memory and budget that only places and the queue's length matter."""
    return WorkerSetup(
        config=SchedulerConfig(max_num_seqs=places, max_batched_tokens=999, max_queue=max_queue),
        kv=KvConfig(page_tokens=4, block_tokens=4),
        pages=2000,
    ).build()


def taken(worker: Scheduler, id: str, n: int = 1) -> bool:
    sampling = SamplingParams(n=n, max_tokens=2, seed=0)
    answer = worker.add(Request(id=RequestId(id), prompt=(1, 2), sampling=sampling), 0.0)
    if isinstance(answer, Admitted):
        return True
    assert isinstance(answer, Rejected) and answer.reason is RejectReason.QUEUE_FULL
    assert answer.retry_after_s
    return False


def turn(worker: Scheduler) -> None:
    plan = worker.step(0.0)
    assert plan is not None
    worker.complete(plan, ScriptedEngine(lambda *_: 3).forward(plan), 0.0)


def test_without_a_queue_an_idle_worker_takes_what_it_can_run() -> None:
    worker = scheduler(places=3, max_queue=0)
    assert [taken(worker, f"r{number}") for number in range(5)] == [True] * 3 + [False] * 2
    turn(worker)
    assert not taken(worker, "late")
    turn(worker)
    assert worker.view(0.0).running == 0
    assert taken(worker, "later")


def test_a_queue_of_one_holds_one_beside_the_one_that_starts() -> None:
    worker = scheduler(places=1, max_queue=1)
    assert [taken(worker, f"r{number}") for number in range(3)] == [True, True, False]
    turn(worker)
    assert not taken(worker, "late")
    worker.abort(RequestId("r1"), 0.0)
    assert taken(worker, "next")


def test_a_request_of_two_sequences_needs_two_places() -> None:
    worker = scheduler(places=3, max_queue=0)
    assert taken(worker, "pair", n=2)
    assert not taken(worker, "another pair", n=2)
    assert taken(worker, "single")
    assert not taken(worker, "last")


@settings(deadline=None, max_examples=100)
@given(st.integers(3, 6), st.integers(0, 4), st.lists(st.integers(1, 3), max_size=16))
def test_never_more_wait_and_nobody_is_refused_for_nothing(
    places: int, max_queue: int, sizes: list[int]
) -> None:
    worker = scheduler(places, max_queue)
    refused = [n for number, n in enumerate(sizes) if not taken(worker, f"r{number}", n)]
    if not sizes:
        return
    worker.step(0.0)
    view = worker.view(0.0)
    assert view.waiting <= max_queue
    assert not refused or view.waiting == max_queue
