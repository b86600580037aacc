"""Every refusal: its reason, its field, what it says, and that nothing is kept."""

from dataclasses import replace

import pytest

from antiphon.errors import ConfigError
from antiphon.testing.strategies import MODEL, WorkerSetup
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

SETUP = WorkerSetup(
    config=SchedulerConfig(max_num_seqs=4, max_batched_tokens=16, max_queue=2),
    kv=KvConfig(page_tokens=2, block_tokens=4),
    pages=20,
    max_model_len=32,
)
GOOD = Request(id=RequestId("r"), prompt=(1, 2, 3), sampling=SamplingParams(max_tokens=4, seed=1))


def sampling(**changes) -> Request:
    return replace(GOOD, sampling=replace(GOOD.sampling, **changes))


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (replace(GOOD, prompt=()), "prompt"),
        (replace(GOOD, prompt=(1, 16)), "prompt"),
        (replace(GOOD, prompt=(1, -1)), "prompt"),
        (sampling(n=0), "n"),
        (sampling(n=5), "n"),
        (sampling(max_tokens=None), "max_tokens"),
        (sampling(max_tokens=-1), "max_tokens"),
        (sampling(seed=None), "seed"),
        (sampling(min_tokens=-1), "min_tokens"),
        (replace(GOOD, resumed=((), ())), "resumed"),
        (replace(GOOD, resumed=((99,),)), "resumed"),
        (replace(GOOD, tenant_salt=bytes(65)), "tenant_salt"),
        (replace(GOOD, deadline=float("nan")), "deadline"),
    ],
)
def test_a_broken_promise_is_invalid_and_names_its_field(request_: Request, field: str) -> None:
    worker = SETUP.build()
    before = worker.view(0.0)
    answer = worker.add(request_, 0.0)
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.field) == (RejectReason.INVALID, field)
    assert field in answer.message
    assert worker.view(0.0) == before and worker.step(0.0) is None


def test_too_long_for_the_model_says_both_numbers() -> None:
    worker = SETUP.build()
    assert isinstance(worker.add(replace(GOOD, prompt=(1,) * 31), 0.0), Admitted)
    answer = worker.add(replace(GOOD, id=RequestId("x"), prompt=(1,) * 32), 0.0)
    assert isinstance(answer, Rejected) and answer.reason is RejectReason.TOO_LONG
    assert "32 tokens" in answer.message and "limit is 32" in answer.message


def test_too_long_for_the_memory_says_both_numbers() -> None:
    worker = replace(SETUP, pages=10).build()
    assert isinstance(worker.add(replace(GOOD, prompt=(1,) * 19), 0.0), Admitted)
    answer = worker.add(replace(GOOD, id=RequestId("x"), prompt=(1,) * 20), 0.0)
    assert isinstance(answer, Rejected) and answer.reason is RejectReason.TOO_LONG
    assert "20 tokens" in answer.message and "holds 20 tokens" in answer.message


def test_more_forks_than_the_memory_holds_are_too_long() -> None:
    worker = replace(SETUP, pages=10).build()
    prompt = (1,) * 15
    request = replace(sampling(n=2), prompt=prompt)
    assert isinstance(worker.add(request, 0.0), Admitted)
    answer = worker.add(replace(sampling(n=3), id=RequestId("x"), prompt=prompt), 0.0)
    assert isinstance(answer, Rejected) and answer.reason is RejectReason.TOO_LONG
    assert "need 12 pages" in answer.message and "has 10" in answer.message


def test_duplicate_deadline_and_full_queue() -> None:
    config = SchedulerConfig(max_num_seqs=1, max_queue=1)
    worker = replace(SETUP, config=config).build()
    assert worker.add(GOOD, 0.0) == Admitted(request=GOOD.id, ahead=0)
    again = worker.add(GOOD, 0.0)
    assert isinstance(again, Rejected) and again.reason is RejectReason.DUPLICATE
    late = worker.add(replace(GOOD, id=RequestId("late"), deadline=3.0), 3.0)
    assert isinstance(late, Rejected) and late.reason is RejectReason.DEADLINE
    assert worker.add(replace(GOOD, id=RequestId("b")), 0.0) == Admitted(
        request=RequestId("b"), ahead=1
    )
    full = worker.add(replace(GOOD, id=RequestId("c")), 0.0)
    assert isinstance(full, Rejected) and full.reason is RejectReason.QUEUE_FULL
    assert full.retry_after_s == 1.0
    worker.abort(GOOD.id, 0.0)
    assert isinstance(worker.add(replace(GOOD, id=RequestId("c")), 0.0), Admitted)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"kv": KvConfig(page_tokens=3, block_tokens=4)}, "kv.page_tokens"),
        ({"kv": KvConfig(page_tokens=0)}, "kv.page_tokens"),
        ({"max_model_len": 1}, "model.max_model_len"),
        ({"max_model_len": MODEL.context_len + 1}, "model.max_model_len"),
        ({"pages": 0}, "kv.memory_bytes"),
        ({"config": SchedulerConfig(max_num_seqs=0)}, "scheduler.max_num_seqs"),
        ({"config": SchedulerConfig(max_batched_tokens=0)}, "scheduler.max_batched_tokens"),
        ({"config": SchedulerConfig(output_quantile=1.0)}, "scheduler.output_quantile"),
        ({"config": SchedulerConfig(reserve_fraction=-0.1)}, "scheduler.reserve_fraction"),
    ],
)
def test_a_wrong_configuration_names_its_key(change: dict, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        replace(SETUP, **change).build()
