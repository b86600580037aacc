"""What a turn of a session needs of the turns before it."""

from collections.abc import Mapping, Sequence

from antiphon.errors import BugError
from antiphon.workload import AnswerOf, Message, Turn


def needed(turn: Turn, index: int) -> tuple[int, ...]:
    """The turns that turn `index` waits for: those it comes after, and those it quotes, in order.

    Raises `BugError` for a turn that would wait for itself or a later one.
    """
    parts = (part for message in turn.history for part in message.parts)
    quoted = {part.turn for part in parts if isinstance(part, AnswerOf)}
    wanted = tuple(sorted(quoted.union(turn.after)))
    if wanted and not 0 <= wanted[0] <= wanted[-1] < index:
        raise BugError(f"turn {index} of a session waits for turn {wanted[-1]}")
    return wanted


def quoting(history: Sequence[Message], texts: Mapping[int, str]) -> tuple[Message, ...]:
    """The messages with answers in the places that stand for them."""
    return tuple(
        Message(
            message.role,
            tuple(
                texts[part.turn] if isinstance(part, AnswerOf) else part for part in message.parts
            ),
        )
        for message in history
    )
