"""Sessions: calls of one user that wait for each other.

A session is a graph of turns. A turn is sent when all turns that it comes `after` have ended and
its pause is over; its messages may quote their answers. So a chat is a chain with think times, an
agent's workflow a graph with fan-out and gaps for its tools, and a single call a graph of one.

    plan ──► search ──┐
        └──► search ──┼─ tool gap ──► write
        └──► search ──┘
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from antiphon.types import Seconds

from .asks import Ask


@dataclass(frozen=True, slots=True)
class AnswerOf:
    """The text that another turn of the session was answered with."""

    turn: int


Part: TypeAlias = str | AnswerOf


@dataclass(frozen=True, slots=True)
class Message:
    """One message before the ask's own text: an earlier turn, or the system's. Parts are joined."""

    role: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One call of a session.

    `history`: messages before `ask.text`, which is the last one, the user's. `after`: indices of
    earlier turns of the session. `pause_s`: between the end of the last of these and this call; for
    a turn without `after`, between the session's begin and it.
    """

    ask: Ask
    history: tuple[Message, ...] = ()
    after: tuple[int, ...] = ()
    pause_s: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What one user does, in an order in which nobody waits for who comes later."""

    number: int
    turns: tuple[Turn, ...]
    slo_class: str = ""


@dataclass(frozen=True, slots=True)
class TimedSession:
    """A session and when it begins, in seconds from the start of the run."""

    at_s: Seconds
    session: Session


class Workload(Protocol):
    """What users do: a function of the seed alone, on every machine."""

    @property
    def description(self) -> str:
        """A sentence for whoever reads a report."""
        ...

    def sessions(self, seed: int) -> Iterator[Session]:
        """Sessions in order of their numbers, from 0. May go on without end."""
        ...
