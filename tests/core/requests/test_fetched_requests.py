"""KV from the store: what the book passes on, believes, and keeps on record."""

import pytest
from fleet_kit import ScriptedRouter, book_of, settle_of, worker_info
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.requests import RequestBook, SoleWorker
from antiphon.core.requests.facts import DropReason
from antiphon.types import (
    Admitted,
    AttemptFailed,
    Dispatch,
    Fetched,
    FinishReason,
    Pulled,
    Request,
    RequestId,
    RequestRecord,
    Role,
    Route,
    SamplingParams,
    SequenceEnded,
    Stage,
    Started,
    TokenGenerated,
    WorkerId,
    WorkerJoined,
)

ID = RequestId("r1")
W0, P, D = WorkerId("w0"), worker_info("p", role=Role.PREFILL), worker_info("d", role=Role.DECODE)
ASKED = Request(id=ID, prompt=tuple(range(20)), sampling=SamplingParams(max_tokens=1, seed=1))


class Fetching(ScriptedRouter):
    """Routes with `fetch`."""

    fetch = 16

    def choose(self, request, now, *, whole=False):
        route = super().choose(request, now, whole=whole)
        assert isinstance(route, Route)
        return Route(
            request=route.request,
            prefill=route.prefill,
            decode=route.decode,
            reason=route.reason,
            fetch=self.fetch,
        )


def fetched(tokens: int = 12, missing: int = 4, attempt: int = 1) -> Fetched:
    return Fetched(
        request=ID, attempt=attempt, fetched_tokens=tokens, missing_tokens=missing, seconds=0.5
    )


def started(cached: int, stored: int, attempt: int = 1) -> Started:
    return Started(
        request=ID, attempt=attempt, cached_tokens=cached, stored_tokens=stored, queued_s=0.1
    )


def ended(book: RequestBook, attempt: int = 1) -> RequestRecord:
    book.heard(TokenGenerated(request=ID, attempt=attempt, sequence=0, index=0, token=5), 8.0)
    end = SequenceEnded(request=ID, attempt=attempt, sequence=0, reason=FinishReason.LENGTH)
    return settle_of(book.heard(end, 9.0)).record


def alone() -> RequestBook:
    book = RequestBook(SoleWorker(W0))
    book.observe(WorkerJoined(worker_info("w0")), 0.0)
    book.start(ASKED, 0.0)
    book.heard(Admitted(request=ID), 1.0)
    return book


def dropped(book: RequestBook) -> dict[DropReason, int]:
    return {reason: count for reason, count in book.dropped.items() if count}


def test_what_was_fetched_is_on_record_and_part_of_what_was_cached() -> None:
    """The API's `cached_tokens` are those of the record: a client is told of both alike."""
    book = alone()
    assert book.heard(fetched(), 3.0) == ()
    assert book.heard(started(14, 12), 4.0) == ()
    record = ended(book)
    assert (record.cached_tokens, record.fetched_tokens, record.recomputed_tokens) == (14, 12, 4)
    assert record.trail[0].fetched_at == 3.0
    assert dropped(book) == {}


def test_a_fetch_that_failed_costs_the_request_nothing_but_time() -> None:
    book = alone()
    book.heard(fetched(0, 16), 3.0)
    book.heard(started(0, 0), 4.0)
    record = ended(book)
    assert (record.fetched_tokens, record.recomputed_tokens, record.outcome.value) == (
        0,
        16,
        "finished",
    )


def test_what_is_missing_of_a_fetch_that_computing_did_not_wait_for_was_not_cached() -> None:
    """The worker says who starts before the pass that could kill it, and so before all is here."""
    book = alone()
    book.heard(started(18, 16), 3.0)
    book.heard(fetched(12, 4), 4.0)
    record = ended(book)
    assert (record.cached_tokens, record.fetched_tokens, record.recomputed_tokens) == (14, 12, 4)
    assert dropped(book) == {}


@pytest.mark.parametrize("prefill", [None, "p"])
def test_whoever_computes_the_prompt_is_told_what_to_fetch(prefill: str | None) -> None:
    router = Fetching(routes=[(prefill, "d")], takers=["d"])
    book = book_of(router, P, D)
    [dispatch] = book.start(ASKED, 0.0)
    stage = Stage.WHOLE if prefill is None else Stage.PREFILL
    assert dispatch == Dispatch(ASKED, WorkerId(prefill or "d"), stage, 16)


@pytest.mark.parametrize(
    ("before", "fact", "reason"),
    [
        ((), fetched(attempt=2), DropReason.FOREIGN),
        ((fetched(),), fetched(), DropReason.DUPLICATE),
        ((), Pulled(request=ID, attempt=1, pulled_tokens=1, cached_tokens=0), DropReason.FOREIGN),
    ],
)
def test_what_is_late_or_foreign_is_dropped(before, fact, reason: DropReason) -> None:
    book = alone()
    for earlier in before:
        book.heard(earlier, 2.0)
    book.heard(fact, 3.0)
    assert dropped(book) == {reason: 1}


def test_the_next_attempt_may_fetch_again_and_the_first_one_is_what_counts() -> None:
    book = book_of(ScriptedRouter(routes=[(None, "d")]), P, D)
    book.start(ASKED, 0.0)
    book.heard(fetched(8, 8), 1.0)
    book.heard(started(8, 8), 1.0)
    book.heard(AttemptFailed(request=ID, attempt=1, message="its own fault"), 2.0)
    book.heard(fetched(16, 0, attempt=2), 3.0)
    book.heard(started(16, 16, attempt=2), 3.0)
    record = ended(book, attempt=2)
    assert (record.fetched_tokens, record.cached_tokens, record.recomputed_tokens) == (8, 8, 8)
    assert [one.fetched_at for one in record.trail] == [1.0, 3.0]


@given(cached=st.integers(-5, 60), stored=st.integers(-5, 60))
@settings(deadline=None, max_examples=50)
def test_no_more_is_fetched_than_was_cached_nor_than_there_is(cached: int, stored: int) -> None:
    book = alone()
    book.heard(started(cached, stored), 2.0)
    record = ended(book)
    assert 0 <= record.fetched_tokens <= record.cached_tokens <= len(ASKED.prompt)
