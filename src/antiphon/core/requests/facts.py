"""Which of the facts that workers report the book may use."""

from enum import StrEnum
from typing import TypeAlias

from antiphon.types import (
    Admitted,
    AttemptFailed,
    Event,
    Fetched,
    GrantAnswered,
    Offer,
    Preempted,
    Pulled,
    Rejected,
    SequenceEnded,
    Started,
    TokenGenerated,
    TokensGenerated,
)

from .attempt import Attempt, Granting, Prefilling, Serving, Waiting
from .open_request import OpenRequest

Fact: TypeAlias = Event | Admitted | Rejected | GrantAnswered


class DropReason(StrEnum):
    """Why a fact was not used. All but LATE and UNKNOWN speak of a faulty or a lost peer."""

    UNKNOWN = "unknown"
    """Of a request that is settled, or was never here: usual after a cancel."""
    FOREIGN = "foreign"
    """Of another attempt, from nobody who was asked, or of a sequence that is not there."""
    LATE = "late"
    """Of a sequence that has ended: usual after a stop string."""
    DUPLICATE = "duplicate"
    CONTRADICTION = "contradiction"
    """A refusal of a request that the worker had already taken."""


def why_unusable(entry: OpenRequest, fact: Fact) -> DropReason | None:
    """Why the book must not use this fact about an open request; None: it may.

    An offer must come from the worker that was asked for it; whether it is sound is not looked at.
    """
    attempt = entry.attempt
    if fact.attempt != attempt.request.attempt:
        return DropReason.FOREIGN
    if isinstance(fact, TokenGenerated | TokensGenerated):  # nearly all of them are: first
        reason = _why_not_of_sequence(entry, fact.sequence)
        repeated = reason is None and fact.index < entry.next_index(fact.sequence)
        return DropReason.DUPLICATE if repeated else reason
    match fact:
        case GrantAnswered():
            return _why_not_granted(entry, fact)
        case Offer():
            asked = isinstance(attempt.place, Prefilling) and attempt.worker == fact.owner
            return None if asked else DropReason.FOREIGN
        case Pulled():
            return _why_not_pulled(entry)
        case Admitted():
            return None if attempt.worker is not None else DropReason.DUPLICATE
        case Rejected():
            taken = attempt.known or attempt.worker is None
            return DropReason.CONTRADICTION if taken else None
        case Started():
            return _why_not_once(attempt, attempt.started)
        case Fetched():
            return _why_not_once(attempt, attempt.fetched)
        case AttemptFailed():
            return None if attempt.worker is not None else DropReason.FOREIGN
        case SequenceEnded() | Preempted():
            return _why_not_of_sequence(entry, fact.sequence)


def _why_not_once(attempt: Attempt, said: bool) -> DropReason | None:
    if attempt.worker is None:
        return DropReason.FOREIGN
    return DropReason.DUPLICATE if said else None


def _why_not_of_sequence(entry: OpenRequest, sequence: int) -> DropReason | None:
    if entry.attempt.worker is None or not entry.has(sequence):
        return DropReason.FOREIGN
    return None if entry.is_open(sequence) else DropReason.LATE


def _why_not_granted(entry: OpenRequest, fact: GrantAnswered) -> DropReason | None:
    if entry.offer is None or entry.offer.lease != fact.lease:
        return DropReason.FOREIGN
    return None if isinstance(entry.attempt.place, Granting) else DropReason.DUPLICATE


def _why_not_pulled(entry: OpenRequest) -> DropReason | None:
    match entry.attempt.place:
        case Serving(adopted=True):
            return None if not entry.attempt.pulled else DropReason.DUPLICATE
        case Serving() | Prefilling() | Granting() | Waiting():
            return DropReason.FOREIGN
