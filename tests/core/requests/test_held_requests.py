"""The queue: its order within a tenant, and when it wakes. Turns of tenants: `test_fair_turns`."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.requests.held_requests import FairShares, HeldRequests
from antiphon.core.urgency import PATIENCE_S
from antiphon.types import Request, RequestId, SamplingParams, Slo


def request(
    name: str,
    priority: int = 0,
    deadline: float | None = None,
    ttft_s: float | None = None,
) -> Request:
    return Request(
        id=RequestId(name),
        prompt=(1,),
        sampling=SamplingParams(seed=0),
        priority=priority,
        deadline=deadline,
        slo=None if ttft_s is None else Slo(ttft_s=ttft_s, tpot_s=1.0),
    )


shapes = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.none() | st.integers(1, 8),
        st.none() | st.integers(1, 8),
        st.none() | st.integers(0, 3),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=150)
@given(shapes, st.lists(st.integers(0, 11)), st.integers(0, 3), st.booleans())
def test_the_order_is_class_urgency_arrival(
    waiting: list[tuple[int, int | None, int | None, int | None]],
    removed: list[int],
    now: int,
    fair: bool,
) -> None:
    """Against the definition: a sorted list. One tenant, or a queue that knows none."""
    queue = HeldRequests(FairShares(ttft_s=4.0) if fair else None)
    for arrival, (priority, deadline, ttft_s, not_before) in enumerate(waiting):
        late = arrival * 0.5
        at = None if deadline is None else late + deadline
        queue.put(request(f"r{arrival}", priority, at, ttft_s), arrival, late, not_before)
    for arrival in removed:
        queue.remove(RequestId(f"r{arrival}"))
    ranks = [
        (
            priority,
            arrival * 0.5 + min(deadline or 99, ttft_s or (4.0 if fair else 99), PATIENCE_S),
            arrival,
        )
        for arrival, (priority, deadline, ttft_s, not_before) in enumerate(waiting)
        if arrival not in removed and (not_before is None or not_before <= now)
    ]
    expected = [f"r{arrival}" for _, _, arrival in sorted(ranks)]
    assert list(queue.ready(now)) == expected
    assert len(queue) == len(waiting) - len({k for k in removed if k < len(waiting)})
    for name in expected:
        assert queue.is_next(RequestId(name), now) == (name == expected[0])


def test_it_wakes_for_whoever_was_asked_in_vain() -> None:
    queue = HeldRequests()
    assert queue.wake_at is None
    queue.put(request("a"), 1, 0.0)
    queue.hold(RequestId("a"), 5.0)
    queue.put(request("b"), 2, 0.0)
    queue.put(request("c"), 3, 0.0, not_before=4.0)
    assert queue.wake_at == 4.0
    queue.asked(4.5)
    assert queue.wake_at == 5.0
    queue.remove(RequestId("a"))
    queue.remove(RequestId("a"))
    assert queue.wake_at == 5.0, "b was never asked for: somebody must"
    queue.remove(RequestId("b"))
    queue.remove(RequestId("c"))
    assert queue.wake_at is None


def test_another_attempt_goes_before_those_that_were_never_served() -> None:
    queue = HeldRequests(FairShares(quantum_tokens=1))
    again = request("again")
    queue.put(again, 1, 0.0)
    queue.take(again.id)
    queue.put(request("new", deadline=0.5), 2, 0.0)
    queue.put(replace(again, attempt=2), 1, 0.0)
    assert list(queue.ready(1.0)) == ["again", "new"]
    queue.take(again.id)
    assert queue.charged == 1, "once for all attempts"
