"""Exhaustive exploration: every order in which the moves of a small world can be made.

Breadth first over the states that can be reached, each visited once: a violation is found on a
shortest trace. Worlds are built from the real decision objects; two worlds are the same state if
their `view`s are equal.
"""

import pickle
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from antiphon.errors import BugError

Move = TypeVar("Move", bound=Hashable)


class World(Protocol[Move]):
    """A state, and what can happen next. It must survive `pickle`."""

    def moves(self) -> Sequence[Move]:
        """All that can happen now, in an order that depends on the state alone."""
        ...

    def make(self, move: Move) -> None:
        """Mutates: this happens. Raises `BugError` if that breaks a law."""
        ...

    def view(self) -> Hashable:
        """All on which the future depends, and nothing else."""
        ...

    def check(self) -> None:
        """Raises `BugError` if a law does not hold here; also called where nothing can happen."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """No state that can be reached breaks a law."""

    states: int
    moves: int
    ends: int
    """States in which nothing can happen."""
    depth: int
    """Moves from the first state to the last one found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation(Generic[Move]):
    """A shortest way to a state that breaks a law."""

    trace: tuple[Move, ...]
    problem: str
    states: int


@dataclass(frozen=True, slots=True)
class TooBig:
    """More states than allowed can be reached; nothing is proved."""

    states: int


@dataclass(frozen=True, slots=True)
class _Step(Generic[Move]):
    """The way to a state, from its end to its beginning."""

    move: Move
    before: "_Step[Move] | None"


def explore(
    world: World[Move], *, max_states: int = 5_000_000
) -> Explored | Violation[Move] | TooBig:
    """Visit every state that can be reached from `world`, which is not changed.

    States are told apart by 64-bit hashes of their views: with a million states the chance that
    any two are confused is about 3 in 10^8.
    """
    seen = {hash(world.view())}
    frontier: deque[tuple[bytes, _Step[Move] | None, int]] = deque([(_packed(world), None, 0)])
    made = ends = depth = 0
    while frontier:
        packed, way, depth = frontier.popleft()
        here: World[Move] = pickle.loads(packed)  # noqa: S301 (our own bytes, a line above)
        moves = here.moves()
        ends += not moves
        for number, move in enumerate(moves):
            # The last move may use up the copy that the moves were read from.
            there = here if number == len(moves) - 1 else pickle.loads(packed)  # noqa: S301
            made += 1
            try:
                there.make(move)
                there.check()
            except BugError as problem:
                trace = _trace(_Step(move, way))
                return Violation(trace=trace, problem=str(problem), states=len(seen))
            view = hash(there.view())
            if view not in seen:
                if len(seen) >= max_states:
                    return TooBig(len(seen))
                seen.add(view)
                frontier.append((_packed(there), _Step(move, way), depth + 1))
    return Explored(states=len(seen), moves=made, ends=ends, depth=depth)


def _packed(world: object) -> bytes:
    return pickle.dumps(world, protocol=pickle.HIGHEST_PROTOCOL)


def _trace(last: _Step[Move]) -> tuple[Move, ...]:
    moves: list[Move] = []
    step: _Step[Move] | None = last
    while step is not None:
        moves.append(step.move)
        step = step.before
    return tuple(reversed(moves))
