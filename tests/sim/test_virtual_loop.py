"""I6: virtual time has a total order and never runs backwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import BugError
from antiphon.sim import VirtualLoop


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=20))
def test_i6_actions_run_by_time_then_by_who_was_scheduled_first(times: list[float]) -> None:
    loop, ran = VirtualLoop(), []
    for number, at in enumerate(times):
        loop.call_at(at, lambda at=at, number=number: ran.append((loop.now, at, number)))
    loop.run()
    assert [entry[1:] for entry in ran] == sorted((at, n) for n, at in enumerate(times))
    assert all(now == at for now, at, _ in ran)


def test_an_action_for_now_runs_after_those_already_there() -> None:
    loop, ran = VirtualLoop(), []

    def first() -> None:
        ran.append("first")
        loop.call_at(loop.now, lambda: ran.append("third"))

    loop.call_at(1.0, first)
    loop.call_at(1.0, lambda: ran.append("second"))
    loop.run()
    assert ran == ["first", "second", "third"]


@pytest.mark.parametrize("at", [0.5, float("nan")])
def test_i6_the_past_is_closed(at: float) -> None:
    loop = VirtualLoop(now=1.0)
    with pytest.raises(BugError, match="future"):
        loop.call_at(at, lambda: None)


def test_a_loop_that_never_rests_is_a_bug() -> None:
    loop = VirtualLoop()

    def again() -> None:
        loop.call_at(loop.now, again)

    again()
    with pytest.raises(BugError, match="come to rest within 10"):
        loop.run(max_actions=10)


def test_running_until_a_time_leaves_the_rest_for_later() -> None:
    loop, ran = VirtualLoop(), []
    for at in (1.0, 2.0, 3.0):
        loop.call_at(at, lambda at=at: ran.append(at))
    loop.run_until(2.0)
    assert (ran, loop.now) == ([1.0, 2.0], 2.0)
    loop.run_until(2.5)
    assert (ran, loop.now) == ([1.0, 2.0], 2.5)
    loop.run()
    assert ran == [1.0, 2.0, 3.0]


def test_a_time_that_never_comes_is_found() -> None:
    loop = VirtualLoop()

    def again() -> None:
        loop.call_at(loop.now, again)

    loop.call_at(0.0, again)
    with pytest.raises(BugError, match="does not come"):
        loop.run_until(1.0, max_actions=100)


def test_after_an_error_what_has_run_does_not_run_again() -> None:
    loop = VirtualLoop()
    ran: list[str] = []

    def fails() -> None:
        ran.append("fails")
        raise RuntimeError

    for action in (lambda: ran.append("first"), fails, lambda: ran.append("last")):
        loop.call_at(1.0, action)
    with pytest.raises(RuntimeError):
        loop.run()
    loop.run()
    assert ran == ["first", "fails", "last"]
