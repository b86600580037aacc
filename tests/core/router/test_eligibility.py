"""Router and workers count alike: what the router routes, the worker takes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from router_kit import info, offer_of, report, request, router

from antiphon.core.kv import entry_pages
from antiphon.core.router import demand_of
from antiphon.core.scheduler import Scheduler
from antiphon.testing.strategies import kv_groups
from antiphon.types import (
    Admitted,
    KvConfig,
    KvShape,
    LeaseId,
    Rejected,
    Request,
    Role,
    Route,
    SchedulerConfig,
    Stage,
    WorkerInfo,
)

LEASE = LeaseId("lease")


def scheduler(of: WorkerInfo) -> Scheduler:
    assert of.kv is not None
    return Scheduler(
        config=SchedulerConfig(max_num_seqs=8, max_batched_tokens=16, max_queue=2),
        kv=KvConfig(page_tokens=of.kv.page_tokens, block_tokens=of.kv.block_tokens),
        pages=of.kv.pages,
        model=of.model,
        max_model_len=of.max_model_len,
    )


@st.composite
def fleets(draw: st.DrawFn) -> list[WorkerInfo]:
    page = draw(st.sampled_from([1, 2, 4, 16]))
    block = page * draw(st.sampled_from([1, 2, 4]))
    groups = draw(kv_groups())
    workers: list[WorkerInfo] = []
    for number in range(draw(st.integers(1, 4))):
        one = info(
            f"w{number}",
            draw(st.sampled_from(Role)),
            max_model_len=draw(st.sampled_from([16, 40, 200])),
        )
        shape = KvShape(
            layout="rows",
            page_tokens=page,
            block_tokens=block,
            page_bytes=page,
            pages=draw(st.integers(2, 24)) * entry_pages(groups),
            entry_pages=entry_pages(groups),
        )
        one = replace(one, kv=shape, model=replace(one.model, kv_groups=groups))
        if any(group.window for group in groups):  # as workers say it: what they have memory for
            one = replace(one, max_model_len=scheduler(one).max_model_len)
        workers.append(one)
    return workers


@st.composite
def requests(draw: st.DrawFn) -> Request:
    n = draw(st.integers(1, 4))
    done = draw(st.sets(st.integers(0, n - 1), max_size=n - 1))
    lengths = draw(st.lists(st.sampled_from([0, 0, 1, 5, 20]), min_size=n, max_size=n))
    return request(
        "r",
        draw(st.integers(1, 130)),
        n=n,
        resumed=tuple((5,) * length for length in lengths),
        done=tuple(sorted(done)),
        attempt=2,
    )


def most_tokens(worker: WorkerInfo) -> int:
    assert worker.kv is not None
    return scheduler(worker).max_model_len


def after_a_token(one: Request, worker: WorkerInfo) -> Request:
    """As it goes on after the worker has computed its prompt and drawn a token for each."""
    resumed = [list(tokens) for tokens in one.resumed] or [[] for _ in range(one.sampling.n)]
    done = set(one.done)
    for sequence in range(one.sampling.n):
        if sequence not in one.done:
            resumed[sequence].append(5)
            if len(one.prompt) + len(resumed[sequence]) >= most_tokens(worker):
                done.add(sequence)
    return replace(one, resumed=tuple(map(tuple, resumed)), done=tuple(sorted(done)))


def check_taken(fleet: list[WorkerInfo], one: Request, *, whole: bool) -> str:
    """Follow what the router decides on an idle fleet; returns what that was."""
    made = router(*fleet, tpot_s=1e-4)
    infos = {worker.id: worker for worker in fleet}
    route = made.choose(one, 0.0, whole=whole)
    if isinstance(route, Rejected):
        for worker in fleet:
            answer = scheduler(worker).add(one, 0.0)
            ends_at_once = demand_of(one).longest >= most_tokens(worker)
            assert isinstance(answer, Rejected) or ends_at_once, "it was refused in vain"
        return "rejected"
    assert isinstance(route, Route), "an idle fleet has nothing to wait for"
    if route.prefill is None:
        worker = scheduler(infos[route.decode])
        assert isinstance(answer := worker.add(one, 0.0), Admitted), answer
        worker.step(0.0)
        return "whole"
    owner = scheduler(infos[route.prefill])
    assert isinstance(answer := owner.add(one, 0.0, Stage.PREFILL, LEASE), Admitted), answer
    assert owner.step(0.0) is not None
    made.prefilled(one.id, 0.0)
    later = after_a_token(one, infos[route.prefill])
    if len(later.done) == one.sampling.n:
        return "over"
    offer = offer_of(infos[route.prefill], later)
    taker = made.choose_decode(offer, later, 0.0)
    assert isinstance(taker, str), taker
    worker = scheduler(infos[taker])
    assert isinstance(answer := worker.adopt(later, offer, 0.0), Admitted), answer
    worker.step(0.0)
    return "split"


@settings(deadline=None, max_examples=300)
@given(fleets(), requests(), st.booleans())
def test_what_the_router_routes_the_scheduler_takes(
    fleet: list[WorkerInfo], one: Request, whole: bool
) -> None:
    check_taken(fleet, one, whole=whole)


@pytest.mark.parametrize(
    ("pages", "tokens", "n", "way"),
    [
        (8, 64, 1, "whole"),  # half of the pages hold the prompt, but not with a token more
        (8, 60, 1, "split"),
        (12, 127, 2, "whole"),
        (16, 63, 4, "whole"),
        (16, 16, 4, "split"),
        (256, 2048, 1, "whole"),
        (256, 2047, 1, "split"),
    ],
)
def test_a_prompt_at_the_edge_of_what_can_be_offered(
    pages: int, tokens: int, n: int, way: str
) -> None:
    fleet = [info("p", Role.PREFILL, pages=pages), info("d", Role.DECODE, pages=pages)]
    assert check_taken(fleet, request("r", tokens, n=n), whole=False) == way


def test_a_taker_that_is_too_small_for_what_is_offered_makes_no_split() -> None:
    fleet = [info("p", Role.PREFILL, pages=64), info("d", Role.DECODE, pages=9)]
    assert check_taken(fleet, request("r", 127, n=2), whole=False) == "whole"
    assert check_taken(fleet, request("s", 120), whole=False) == "split"


def test_sequences_that_have_ended_need_no_pages_on_another_worker() -> None:
    one = request("r", 60, n=4, resumed=((5,),) * 4, done=(0, 1, 2), attempt=2)
    assert check_taken([info("small", pages=5)], one, whole=False) == "whole"


def test_sequences_that_grew_too_large_to_go_on_together_are_computed_in_turn() -> None:
    one = request("r", 20, n=3, resumed=((5,) * 40,) * 3, attempt=2)
    assert check_taken([info("w", pages=7)], one, whole=False) == "whole"


def test_what_a_request_needs_follows_what_its_worker_reports() -> None:
    made = router(info("a", pages=1000), info("b", pages=1000))
    demand = demand_of(request("r", tokens=2000))
    a, b = made.workers
    assert a.kind is b.kind  # asked once for both
    assert demand.needs(a.kind) is demand.needs(b.kind)
    assert demand.needs(a.kind).runs == (True, True)
    report(made, "a", total_pages=10)
    assert (a.total_pages, b.total_pages) == (10, 1000)
    assert demand.needs(a.kind).runs == (False, False)
    assert not (demand.needs(a.kind).adopts[0] or demand.needs(a.kind).offers)
    assert demand.needs(b.kind).runs == (True, True)
    chosen = made.choose(request("r", tokens=2000), 0.0)
    assert isinstance(chosen, Route)
    assert chosen.decode == "b"
