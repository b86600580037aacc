"""The router as the request book uses it: both kept in step over a whole life."""

from collections.abc import Sequence
from dataclasses import replace

from router_kit import info, offer_of, request, router, view

from antiphon.core.kv import BlockKeys
from antiphon.core.recorder import Entry, recorded, replay
from antiphon.core.requests import DropReason, RequestBook, Routing
from antiphon.core.router import ROUTER, ROUTER_METHODS, Router
from antiphon.types import (
    STORE,
    Abort,
    Adopt,
    BlockKey,
    Command,
    Deliver,
    Dispatch,
    Fetched,
    FinishReason,
    Grant,
    GrantAnswered,
    Health,
    HealthChanged,
    Incarnation,
    KvDump,
    Pulled,
    Rejected,
    RejectReason,
    Role,
    SequenceEnded,
    Settle,
    Stage,
    Started,
    Tier,
    TokenGenerated,
    WorkerId,
    WorkerJoined,
    WorkerReported,
)

HOST = Tier.HOST


def keys_of(tokens: Sequence[int], blocks: int) -> list[BlockKey]:
    """Of the first blocks of a prompt, as these workers have them."""
    keys: list[BlockKey] = []
    made = BlockKeys(identity=bytes(32), numerics="avx512")
    made.extend(keys, tokens, min(blocks, len(tokens) // 64))
    return keys


P, D, D2 = (
    info("prefill-0", Role.PREFILL),
    info("decode-0", Role.DECODE),
    info("decode-1", Role.DECODE),
)


def book_of(*infos: object) -> tuple[RequestBook, Router]:
    made = router()
    routing: Routing = made
    book = RequestBook(routing)
    for one in infos:
        assert isinstance(one, type(P))
        book.observe(WorkerJoined(one), 0.0)
    return book, made


def only(commands: Sequence[Command], kind: type) -> Command:
    (found,) = [command for command in commands if isinstance(command, kind)]
    return found


def token(name: str, index: int, attempt: int = 1) -> TokenGenerated:
    return TokenGenerated(
        request=request(name).id, attempt=attempt, sequence=0, index=index, token=5
    )


def test_a_split_request_lives_and_leaves_nothing() -> None:
    book, made = book_of(P, D)
    one = request("r", 1000)
    first = only(book.start(one, 0.0), Dispatch)
    assert first == Dispatch(one, P.id, Stage.PREFILL)
    assert made.workers[1].load.queued_tokens == 1000
    only(book.heard(token("r", 0), 1.0), Deliver)
    assert made.workers[1].load.queued_tokens == 0
    grant = only(book.heard(offer_of(P, one), 1.0), Grant)
    assert isinstance(grant, Grant)
    assert grant.taker == D.id
    answer = GrantAnswered(request=one.id, attempt=1, lease=grant.lease)
    adopt = only(book.heard(answer, 1.1), Adopt)
    assert isinstance(adopt, Adopt)
    assert adopt.worker == D.id
    book.heard(Pulled(request=one.id, attempt=1, pulled_tokens=1000, cached_tokens=0), 1.2)
    for index in range(1, 100):  # max_tokens
        book.heard(token("r", index), 1.3)
    end = SequenceEnded(request=one.id, attempt=1, sequence=0, reason=FinishReason.LENGTH)
    only(book.heard(end, 1.4), Settle)
    assert made.open_requests == 0
    assert [worker.load.sequences for worker in made.workers] == [0, 0]


def test_a_lost_decode_worker_hands_on_to_the_other_and_its_load_moves_too() -> None:
    book, made = book_of(P, D, D2)
    one = request("r", 1000)
    book.start(one, 0.0)
    book.heard(token("r", 0), 1.0)
    grant = only(book.heard(offer_of(P, one), 1.0), Grant)
    assert isinstance(grant, Grant)
    again = only(book.observe(HealthChanged(grant.taker, Health.LOST), 1.1), Grant)
    assert isinstance(again, Grant)
    assert (again.attempt, again.taker) == (2, ({D.id, D2.id} - {grant.taker}).pop())
    book.cancel(one.id, 1.2)
    assert made.open_requests == 0
    assert [worker.load.sequences for worker in made.workers] == [0, 0]


def test_the_last_worker_s_restart_fails_nothing() -> None:
    book, made = book_of(info("mixed-0"))
    one = request("r", 100, deadline=60.0)
    only(book.start(one, 0.0), Dispatch)
    assert not book.observe(HealthChanged(WorkerId("mixed-0"), Health.LOST), 0.5)
    assert book.next_deadline() is not None
    (dispatch,) = book.observe(WorkerJoined(info("mixed-0", life="2")), 3.0)
    assert isinstance(dispatch, Dispatch)
    assert dispatch.request.attempt == 2
    only(book.cancel(one.id, 4.0), Settle)
    assert made.open_requests == 0


def test_a_worker_without_room_after_all_sends_the_request_to_the_other() -> None:
    book, made = book_of(info("mixed-0"), info("mixed-1"))
    one = request("r", 100)
    first = only(book.start(one, 0.0), Dispatch)
    assert isinstance(first, Dispatch)
    full = Rejected(request=one.id, reason=RejectReason.QUEUE_FULL, message="full")
    second = only([*book.heard(full, 0.1), *book.due(0.3)], Dispatch)
    assert isinstance(second, Dispatch)
    assert second.worker != first.worker
    assert sum(worker.load.requests for worker in made.workers) == 1


def test_what_a_drained_worker_has_goes_on_and_nothing_new_comes() -> None:
    book, made = book_of(info("mixed-0"), info("mixed-1"))
    first = only(book.start(request("a"), 0.0), Dispatch)
    assert isinstance(first, Dispatch)
    book.drain(first.worker, 10.0, 0.1)
    for name in ("b", "c"):
        other = only(book.start(request(name), 0.2), Dispatch)
        assert isinstance(other, Dispatch)
        assert other.worker != first.worker
    moved = book.due(10.0)
    abort, dispatch = only(moved, Abort), only(moved, Dispatch)
    assert isinstance(abort, Abort)
    assert isinstance(dispatch, Dispatch)
    assert (abort.worker, dispatch.worker) == (first.worker, other.worker)
    for name in ("a", "b", "c"):
        book.cancel(request(name).id, 11.0)
    assert made.open_requests == 0


def test_a_fetch_is_ordered_reported_and_on_record() -> None:
    """LMCache 3388: what was not fetched must be computed, and be seen to be."""
    book, made = book_of(info("mixed-0"))
    one = request("r", 1000)
    blocks = tuple((key, HOST) for key in keys_of(one.prompt, 15))
    dump = KvDump(next=0, begins=True, ends=True, blocks=blocks)
    assert made.heard_kv(STORE, Incarnation("store-1"), dump, 0.0) is None
    dispatch = only(book.start(one, 0.0), Dispatch)
    assert isinstance(dispatch, Dispatch)
    assert dispatch.fetch == 960
    (worker,) = made.workers
    assert worker.load.queued_tokens == 40
    late = Fetched(
        request=one.id, attempt=1, fetched_tokens=640, missing_tokens=320, problem="one is gone"
    )
    for attempt in (2, 1, 1):  # of another attempt, the true one, and again
        assert book.heard(replace(late, attempt=attempt), 0.2) == ()
    assert worker.load.queued_tokens == 360
    assert book.dropped[DropReason.FOREIGN] == book.dropped[DropReason.DUPLICATE] == 1
    started = Started(request=one.id, attempt=1, cached_tokens=640, queued_s=0.1, stored_tokens=640)
    book.heard(started, 0.3)
    settle = only(book.cancel(one.id, 0.4), Settle)
    assert isinstance(settle, Settle)
    record = settle.record
    assert (record.cached_tokens, record.fetched_tokens, record.recomputed_tokens) == (
        640,
        640,
        320,
    )
    assert made.open_requests == 0


def test_reports_pass_through_the_book() -> None:
    book, made = book_of(P, D)
    book.observe(WorkerReported(P.id, view(waiting=1, waiting_tokens=77)), 0.1)
    assert made.workers[1].load.queued_tokens == 77


def test_a_recorded_router_decides_the_same_again() -> None:
    entries: list[Entry] = []
    made = recorded(ROUTER, router(policy="random", seed=3), ROUTER_METHODS, entries.append)
    for one in (P, D, D2, info("mixed-0")):
        made.observe(WorkerJoined(one), 0.0)
    for number in range(40):
        one = request(f"r{number}", 50 * number + 1)
        made.choose(one, float(number))
        made.prefilled(one.id, number + 0.1)
        made.choose_decode(offer_of(P, one), one, number + 0.2)
        if number % 2:
            made.settled(one.id, number + 0.5, again=number % 3 == 0)
        made.observe(WorkerReported(D.id, view(running=number % 5)), number + 0.6)
        made.refused(D2.id, number + 0.7)
        keys = keys_of(one.prompt, number % 8)
        told = KvDump(next=0, begins=True, ends=True, blocks=tuple((key, HOST) for key in keys))
        made.heard_kv(STORE, Incarnation(f"store-{number}"), told, number + 0.8)
        made.fetched(one.id, 64, 0.5, number + 0.9)
        made.heard_peer_time(STORE, 1e-3 * (number % 3), number + 0.9)
        if number % 10 == 9:
            made.kv_holder_left(STORE, number + 0.9)
    assert {entry.method for entry in entries} == set(ROUTER_METHODS)
    assert not list(replay(entries, {ROUTER: router(policy="random", seed=3)}))
    assert list(replay(entries, {ROUTER: router(policy="random", seed=4)}))
