"""The explorer visits everything, finds shortest traces, and tells rest from being stuck."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from antiphon.errors import BugError
from antiphon.testing.explore import Explored, TooBig, Violation, explore


@dataclass(frozen=True)
class Grid:
    """Walks from (0, 0) to (size, size) by steps right and up; `wall` breaks a law."""

    size: int
    wall: tuple[int, int] | None = None
    pit: tuple[int, int] | None = None
    """From here nothing leads on but a loop."""
    end: tuple[int, int] | None = None
    """Where alone it may end."""

    def first(self) -> Sequence[tuple[int, int]]:
        return [(0, 0)]

    def moves(self, state: tuple[int, int]) -> Sequence[str]:
        if state == self.pit:
            return ["stay"]
        return [name for name, at in zip("ru", state, strict=True) if at < self.size]

    def after(self, state: tuple[int, int], move: str) -> tuple[int, int]:
        x, y = state
        there = {"r": (x + 1, y), "u": (x, y + 1), "stay": state}[move]
        if there == self.wall:
            raise BugError(f"a wall at {there}")
        return there

    def check_end(self, state: tuple[int, int]) -> None:
        if self.end not in (None, state):
            raise BugError(f"ends at {state}")


@pytest.mark.parametrize("size", [0, 1, 7])
def test_every_state_is_visited_once(size: int) -> None:
    found = explore(Grid(size))
    states, moves = (size + 1) ** 2, 2 * size * (size + 1)
    assert found == Explored(states=states, moves=moves, ends=1, depth=2 * size)


def test_a_violation_comes_with_a_shortest_trace() -> None:
    found = explore(Grid(9, wall=(2, 1)))
    assert isinstance(found, Violation)
    assert sorted(found.trace) == ["r", "r", "u"]
    assert "wall" in found.problem
    state = (0, 0)
    for move in found.trace[:-1]:
        state = Grid(9).after(state, move)
    with pytest.raises(BugError):
        Grid(9, wall=(2, 1)).after(state, found.trace[-1])


def test_a_state_from_which_no_end_is_in_reach_is_found() -> None:
    found = explore(Grid(5, pit=(1, 2)))
    assert isinstance(found, Violation)
    assert sorted(found.trace) == ["r", "u", "u"]
    assert "no end" in found.problem


def test_a_wrong_end_is_found() -> None:
    found = explore(Grid(2, end=(9, 9)))
    assert isinstance(found, Violation)
    assert len(found.trace) == 4


def test_what_is_too_big_proves_nothing() -> None:
    assert isinstance(explore(Grid(50), max_states=100), TooBig)
