"""Which values a gateway takes from a worker."""

from dataclasses import replace
from math import inf, nan

import pytest

from antiphon.core.said_by_workers import (
    wrong_in_answer,
    wrong_in_batch,
    wrong_in_leave,
    wrong_in_view,
)
from antiphon.types import (
    MOST_EXPERT_COUNTS,
    Admitted,
    EventBatch,
    ExpertTokens,
    Fetched,
    Incarnation,
    KvShape,
    LeaseId,
    Leave,
    Logprobs,
    Offer,
    Pulled,
    Rejected,
    RejectReason,
    RequestId,
    Started,
    TokenGenerated,
    WorkerId,
    WorkerView,
)

VIEW = WorkerView(
    running=1,
    waiting=0,
    free_pages=3,
    held_pages=4,
    cached_pages=1,
    total_pages=8,
    peak_pages=4,
    prefix_queried_tokens_total=0,
    prefix_hit_tokens_total=0,
    preemptions_total=0,
    steps_total=0,
    computed_tokens_total=0,
)
R = RequestId("r")


def experts(count: int, layers: tuple[int, ...], totals: tuple[int, ...]) -> ExpertTokens:
    return ExpertTokens(experts=count, layers=layers, totals=totals)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, ""),
        ({"running": -1}, "running is -1"),
        ({"steps_total": 2**63}, "steps_total is"),
        ({"total_pages": 0, "free_pages": 0, "held_pages": 0, "cached_pages": 0}, "total_pages"),
        ({"held_pages": 5}, "do not add up"),
        ({"busy_s_total": nan}, "busy_s_total is nan"),
        ({"expert_tokens": experts(2, (0, 4), (1, 2, 3, 4))}, ""),
        ({"expert_tokens": experts(MOST_EXPERT_COUNTS, (), (2**48,) * MOST_EXPERT_COUNTS)}, ""),
        ({"expert_tokens": experts(2, (0, 4), (1, 2, 3))}, "3 totals of 2 experts"),
        ({"expert_tokens": experts(-2, (0, 4), (1, 2, 3, 4))}, "4 totals of -2 experts"),
        ({"expert_tokens": experts(0, (), ())}, "0 totals"),
        ({"expert_tokens": experts(4097, (), (0,) * 4097)}, "4097 totals"),
        ({"expert_tokens": experts(2, (4, 4), (1, 2, 3, 4))}, "do not ascend"),
        ({"expert_tokens": experts(1, (0, 9, 5), (1, 2, 3))}, "do not ascend"),
        ({"expert_tokens": experts(1, (-1, 2), (1, 2))}, "layers -1 to 2"),
        ({"expert_tokens": experts(1, (0, 2**16), (1, 2))}, "layers 0 to 65536"),
        ({"expert_tokens": experts(2, (), (1, -1))}, "expert_tokens is -1"),
        ({"expert_tokens": experts(2, (), (1, 2**63))}, "expert_tokens is"),
    ],
)
def test_views(changes, wrong: str) -> None:
    assert wrong in wrong_in_view(replace(VIEW, **changes))
    assert bool(wrong) == bool(wrong_in_view(replace(VIEW, **changes)))


def token(id: int, logprobs: Logprobs | None = None) -> EventBatch:
    said = TokenGenerated(request=R, attempt=1, sequence=0, index=0, token=id, logprobs=logprobs)
    return EventBatch(tokens=(said,))


def pulled(**changes) -> EventBatch:
    said = Pulled(request=R, attempt=1, pulled_tokens=1, cached_tokens=0)
    return EventBatch(pulled=(replace(said, **changes),))


def fetched(**changes) -> EventBatch:
    said = Fetched(request=R, attempt=1, fetched_tokens=4, missing_tokens=0, seconds=0.1)
    return EventBatch(fetched=(replace(said, **changes),))


def offered(ttl_s: float) -> EventBatch:
    said = Offer(
        request=R,
        attempt=1,
        lease=LeaseId("lease"),
        ttl_s=ttl_s,
        owner=WorkerId("w"),
        incarnation=Incarnation("1"),
        kv=KvShape(layout="l", page_tokens=4, block_tokens=4, page_bytes=8, pages=1),
        numerics="n",
        pages=(),
        sequences=(),
    )
    return EventBatch(offers=(said,))


@pytest.mark.parametrize(
    ("batch", "wrong"),
    [
        (token(0), ""),
        (token(9, Logprobs(-inf, ((9, 0.0),))), ""),
        (token(-1), "token is -1, of 10"),
        (token(10), "token is 10, of 10"),
        (token(1, Logprobs(nan)), "log-probability"),
        (token(1, Logprobs(-1.0, ((1, inf),))), "log-probability"),
        (token(1, Logprobs(-1.0, ((10, -1.0),))), "a likely token is 10"),
        (pulled(), ""),
        (pulled(pulled_tokens=-1), "pulled_tokens is -1"),
        (pulled(moved_bytes=-1), "moved_bytes is -1"),
        (pulled(seconds=inf), "seconds is inf"),
        (fetched(), ""),
        (fetched(fetched_tokens=-4), "fetched_tokens is -4"),
        (fetched(missing_tokens=-1), "missing_tokens is -1"),
        (fetched(seconds=nan), "seconds is nan"),
        (offered(3.0), ""),
        (offered(0.0), "ttl_s is 0.0"),
        (offered(inf), "ttl_s is inf"),
        (
            EventBatch(started=(Started(request=R, attempt=1, cached_tokens=0, queued_s=-0.5),)),
            "queued_s is -0.5",
        ),
    ],
)
def test_events(batch: EventBatch, wrong: str) -> None:
    found = wrong_in_batch(batch, 10)
    assert wrong in found
    assert bool(wrong) == bool(found)


@pytest.mark.parametrize(
    ("retry_after_s", "fits"), [(None, True), (0.0, True), (nan, False), (-1.0, False)]
)
def test_answers(retry_after_s: float | None, fits: bool) -> None:
    refused = Rejected(
        request=R, reason=RejectReason.QUEUE_FULL, message="", retry_after_s=retry_after_s
    )
    assert (wrong_in_answer(refused) == "") is fits
    assert wrong_in_answer(Admitted(request=R)) == ""
    assert wrong_in_answer(Admitted(request=R, ahead=-1)) == "ahead is -1"


@pytest.mark.parametrize(("timeout_s", "fits"), [(0.0, True), (nan, False), (inf, False)])
def test_leaving(timeout_s: float, fits: bool) -> None:
    assert (wrong_in_leave(Leave(timeout_s)) == "") is fits
