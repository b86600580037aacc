"""The queue against the definition: a sorted list."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.requests.held_requests import HeldRequests
from antiphon.types import Request, RequestId, SamplingParams


def request(name: str, priority: int = 0, deadline: float | None = None) -> Request:
    return Request(
        id=RequestId(name),
        prompt=(1,),
        sampling=SamplingParams(seed=0),
        priority=priority,
        deadline=deadline,
    )


shapes = st.lists(
    st.tuples(st.integers(0, 2), st.none() | st.integers(0, 3), st.none() | st.integers(0, 3)),
    max_size=12,
)


@settings(deadline=None, max_examples=200)
@given(shapes, st.lists(st.integers(0, 11)), st.integers(0, 3))
def test_the_order_is_class_deadline_arrival(
    waiting: list[tuple[int, int | None, int | None]], removed: list[int], now: int
) -> None:
    queue = HeldRequests()
    for arrival, (priority, deadline, not_before) in enumerate(waiting):
        queue.put(request(f"r{arrival}", priority, deadline), arrival, not_before)
    for arrival in removed:
        queue.remove(RequestId(f"r{arrival}"))
    ranks = [
        (priority, float("inf") if deadline is None else deadline, arrival)
        for arrival, (priority, deadline, not_before) in enumerate(waiting)
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
    queue.put(request("a"), 1)
    queue.hold(RequestId("a"), 5.0)
    queue.put(request("b"), 2)
    queue.put(request("c"), 3, not_before=4.0)
    assert queue.wake_at == 4.0
    queue.asked(4.5)
    assert queue.wake_at == 5.0
    queue.remove(RequestId("a"))
    queue.remove(RequestId("a"))
    assert queue.wake_at == 5.0, "b was never asked for: somebody must"
    queue.remove(RequestId("b"))
    queue.remove(RequestId("c"))
    assert queue.wake_at is None
