"""A request that is over leaves nothing: its prompt may be long, and many come."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from scheduler_bench import Bench, request

from antiphon.core.scheduler.sequence import RequestState, SequenceState
from antiphon.types import Admitted, LeaseId, RequestId, Stage


def states() -> int:
    return sum(isinstance(one, RequestState | SequenceState) for one in gc.get_objects())


@contextmanager
def nobody_looks_for_cycles() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_requests_that_have_ended_need_no_search_for_cycles() -> None:
    bench = Bench()
    with nobody_looks_for_cycles():
        before = states()
        bench.add(request("a"), request("b", n=3), request("c", max_tokens=1))
        assert states() > before
        bench.finish()
        assert states() == before


def test_nor_do_those_that_were_offered_or_aborted() -> None:
    bench = Bench()
    with nobody_looks_for_cycles():
        before = states()
        offered = request("a", prompt=(1,) * 7, n=2)
        answer = bench.scheduler.add(offered, 0.0, Stage.PREFILL, LeaseId("lease"))
        assert isinstance(answer, Admitted)
        bench.finish()
        bench.add(request("b", n=2), request("c"))
        bench.turn()
        bench.scheduler.abort(RequestId("b"), 0.0, 1)
        bench.scheduler.abort(RequestId("c"), 0.0)
        bench.scheduler.abort(RequestId("b"), 0.0)
        assert bench.scheduler.step(0.0) is None
        assert states() == before


def test_nor_do_those_of_which_an_earlier_attempt_said_all() -> None:
    bench = Bench()
    with nobody_looks_for_cycles():
        before = states()
        bench.add(request("a", n=2, resumed=((9, 9), (9,)), done=(0,), attempt=2))
        bench.add(request("b", n=2, resumed=((9,) * 4, (9,)), attempt=2))
        bench.add(request("c", resumed=((9,) * 4,), attempt=2))
        bench.finish()
        bench.scheduler.expire(0.0)
        assert states() == before
