"""A step's events as one message.

The events of a kind lie side by side, so that one decoder reads them without asking each what it
is; and runs keep their order exactly. The usual step is one run of tokens.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from antiphon.types import (
    AttemptFailed,
    Event,
    EventBatch,
    Fetched,
    Offer,
    Preempted,
    Pulled,
    SequenceEnded,
    Started,
    TokenGenerated,
    TokensGenerated,
)

from .frame import FrameError

_KINDS = (
    Started,
    TokenGenerated,
    SequenceEnded,
    Preempted,
    Offer,
    Pulled,
    AttemptFailed,
    Fetched,
    TokensGenerated,
)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}


def pack_events(events: Iterable[Event]) -> EventBatch:
    """The batch that `unpack_events` turns into the same events in the same order."""
    columns: tuple[list[Any], ...] = tuple([] for _ in _KINDS)
    runs: list[tuple[int, int]] = []
    for kind, group in groupby(events, type):
        number = _NUMBERS[kind]
        column = columns[number]
        before = len(column)
        column += group
        runs.append((number, len(column) - before))
    started, tokens, ended, preempted, offers, pulled, failed, fetched, repeated = map(
        tuple, columns
    )
    return EventBatch(
        started=started,
        tokens=tokens,
        ended=ended,
        preempted=preempted,
        offers=offers,
        pulled=pulled,
        failed=failed,
        fetched=fetched,
        repeated=repeated,
        runs=tuple(runs),
    )


def unpack_events(batch: EventBatch) -> Sequence[Event]:
    """The events of a batch in order. Raises `FrameError` if runs and columns disagree."""
    columns: tuple[tuple[Event, ...], ...] = (
        batch.started,
        batch.tokens,
        batch.ended,
        batch.preempted,
        batch.offers,
        batch.pulled,
        batch.failed,
        batch.fetched,
        batch.repeated,
    )
    used = [0] * len(columns)
    events: list[Event] = []
    for number, count in batch.runs:
        if not 0 <= number < len(columns) or count < 1:
            raise FrameError(f"a run of {count} events of kind {number} can't be")
        start = used[number]
        used[number] = start + count
        events += columns[number][start : start + count]
    if used != [len(column) for column in columns]:
        raise FrameError("the runs of a batch do not add up to its events")
    return events
