"""Whose attempts end with a forward pass that raised."""

from collections.abc import Iterable, Sequence

from antiphon.types import Event, RequestId, SequenceEnded


def broken_off(
    events: Iterable[Event], message: str
) -> tuple[Sequence[tuple[RequestId, int]], list[Event]]:
    """Each (request, attempt) whose sequences ended with `message`, once; and the other events.

    Another worker may do better: it is the attempt that ends, not the request.
    """
    attempts: dict[tuple[RequestId, int], None] = {}
    others: list[Event] = []
    for event in events:
        if isinstance(event, SequenceEnded) and event.message == message:
            attempts[event.request, event.attempt] = None
        else:
            others.append(event)
    return tuple(attempts), others
