"""What happened in a run of a virtual cluster, in order, as facts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from antiphon.core.faults import Node
from antiphon.types import (
    Command,
    FinishReason,
    Incarnation,
    LeaseId,
    PageId,
    Request,
    RequestId,
    Seconds,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Arrived:
    """A client's call reached a living gateway."""

    request: Request


@dataclass(frozen=True, slots=True)
class Turned:
    """A client's call found no gateway."""

    request: Request


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A client, or a stop string, ended a request or one sequence of it."""

    request: RequestId
    sequence: int | None
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class AbortHeard:
    """A worker learned that an attempt, or one sequence of it, is not wanted any more."""

    request: RequestId
    attempt: int
    sequence: int | None


@dataclass(frozen=True, slots=True)
class LifeBegan:
    """A process started."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class LifeEnded:
    """A process died: a gateway takes the streams of its clients with it."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """An owner promised a lease to this life of a taker."""

    lease: LeaseId
    taker: Incarnation
    attempt: int


@dataclass(frozen=True, slots=True)
class LeaseUsed:
    """An owner let this life of a taker take or acknowledge a lease."""

    lease: LeaseId
    taker: Incarnation
    attempt: int


@dataclass(frozen=True, slots=True)
class BadCopy:
    """A taker found that a page was not what it had been offered."""

    page: PageId


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a driver saw, for people."""

    text: str


Entry: TypeAlias = Arrived | Turned | GivenUp | LifeBegan | LifeEnded | Note | Command | object


@dataclass(slots=True)
class ClusterLog:
    """Each entry with the time of the world and the process that it happened in."""

    entries: list[tuple[Seconds, Node, Entry]] = field(default_factory=list)

    def note(self, at: Seconds, node: Node, what: Entry) -> None:
        """Mutates: this happened."""
        self.entries.append((at, node, what))

    def of_type(self, kind: type[T]) -> Iterator[T]:
        """Everything of that type, in order."""
        return (what for _, _, what in self.entries if isinstance(what, kind))

    def text(self) -> str:
        """The whole log, one line an entry: equal runs have equal texts."""
        return "\n".join(f"{at!r} {node} {what!r}" for at, node, what in self.entries)
