"""Numbers of sessions and asks: each unique in its run, in order, without holes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from .sessions import Session


def numbered(sessions: Iterable[Session]) -> Iterator[Session]:
    """The same sessions, they and their asks counted from 0."""
    asks = 0
    for number, session in enumerate(sessions):
        turns = tuple(
            replace(turn, ask=replace(turn.ask, number=asks + place))
            for place, turn in enumerate(session.turns)
        )
        asks += len(turns)
        yield replace(session, number=number, turns=turns)
