"""Exhaustive exploration: every order in which the moves of a small model can be made.

Breadth first over the states that can be reached, each visited once, so that a violation is found
on a shortest trace. The states hold the real decision objects; see `handover_model`.
"""

from array import array
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from antiphon.errors import BugError

State = TypeVar("State", bound=Hashable)
Move = TypeVar("Move", bound=Hashable)


class Model(Protocol[State, Move]):
    """States, and what can happen in each. States are equal if their futures are."""

    def first(self) -> Sequence[State]:
        """Where exploration begins."""
        ...

    def moves(self, state: State) -> Sequence[Move]:
        """All that can happen now, in an order that depends on the state alone."""
        ...

    def after(self, state: State, move: Move) -> State:
        """What comes of it. Raises `BugError` if a law is broken on the way."""
        ...

    def check_end(self, state: State) -> None:
        """Raises `BugError` if a law does not hold here, where nothing can happen any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """No state that can be reached breaks a law, and from each an end can be reached."""

    states: int
    moves: int
    ends: int
    """States in which nothing can happen."""
    depth: int
    """Moves from a first state to the last one found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation(Generic[Move]):
    """A shortest way to where a law is broken. `first`: the number of the state it begins at."""

    first: int
    trace: tuple[Move, ...]
    problem: str
    states: int


@dataclass(frozen=True, slots=True)
class TooBig:
    """More states than allowed can be reached; nothing is proved."""

    states: int


def explore(
    model: Model[State, Move], *, max_states: int = 5_000_000
) -> Explored | Violation[Move] | TooBig:
    """Visit every state that can be reached.

    Besides the model's own laws, an end must be in reach from every state: whatever has happened,
    things can still come to rest (no deadlock, no livelock that cannot be left).

    States are told apart by 64-bit hashes: with a million states the chance that any two are
    confused is about 3 in 10^8.
    """
    graph: _Graph[Move] = _Graph()
    frontier: deque[State] = deque(one for one in model.first() if graph.begin(hash(one)))
    explored = 0
    while frontier:
        here, number = frontier.popleft(), explored
        explored += 1
        moves = model.moves(here)
        if not moves:
            graph.ends.append(number)
            if problem := _broken(lambda here=here: model.check_end(here)):
                return graph.violation(number, (), problem)
        for move in moves:
            try:
                there = model.after(here, move)
            except BugError as problem:
                return graph.violation(number, (move,), str(problem) or type(problem).__name__)
            if graph.add(number, move, hash(there)):
                frontier.append(there)
        if len(graph) > max_states:
            return TooBig(len(graph))
    stuck = graph.endless()
    if stuck is not None:
        return graph.violation(stuck, (), "no end can be reached from here")
    return Explored(
        states=len(graph), moves=graph.moves, ends=len(graph.ends), depth=max(graph.depths)
    )


class _Graph(Generic[Move]):
    """The states that were found, numbered in that order, and how they hang together."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._ways: list[tuple[int, Move] | None] = []
        """How each state was reached first; None: it is a first state."""
        self.depths = array("L")
        self._sources, self._targets = array("L"), array("L")
        self.ends = array("L")

    def __len__(self) -> int:
        return len(self._ways)

    @property
    def moves(self) -> int:
        """How many moves lead from one state to another."""
        return len(self._sources)

    def begin(self, view: int) -> bool:
        """Mutates: exploration begins there. False: it does so already."""
        if view in self._numbers:
            return False
        self._found(view, None, 0)
        return True

    def add(self, source: int, move: Move, view: int) -> bool:
        """Mutates: this move leads there. True: nobody has been there before."""
        target = self._numbers.get(view)
        self._sources.append(source)
        self._targets.append(len(self) if target is None else target)
        if target is None:
            self._found(view, (source, move), self.depths[source] + 1)
        return target is None

    def _found(self, view: int, way: tuple[int, Move] | None, depth: int) -> None:
        self._numbers[view] = len(self)
        self._ways.append(way)
        self.depths.append(depth)

    def violation(self, state: int, more: Sequence[Move], problem: str) -> Violation[Move]:
        """The shortest way to a state, and then `more`."""
        moves = list(reversed(more))
        while (way := self._ways[state]) is not None:
            state, move = way
            moves.append(move)
        trace = tuple(reversed(moves))
        return Violation(first=state, trace=trace, problem=problem, states=len(self))

    def endless(self) -> int | None:
        """The first state from which no end can be reached; None: there is none."""
        before: dict[int, list[int]] = {}
        for source, target in zip(self._sources, self._targets, strict=True):
            before.setdefault(target, []).append(source)
        ending = bytearray(len(self))
        todo = list(self.ends)
        while todo:
            state = todo.pop()
            if not ending[state]:
                ending[state] = 1
                todo += before.get(state, ())
        return None if all(ending) else ending.index(0)


def _broken(act: Callable[[], None]) -> str | None:
    try:
        act()
    except BugError as problem:
        return str(problem) or type(problem).__name__
    return None
