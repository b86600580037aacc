"""The workers of a live server, as its supervisor and its gateway know them.

supervisor ── processes ──┐
gateway ────── members ───┴──► PresentWorker ──► MoveBook ──► each as a SteeredWorker
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from antiphon.core.planner import MoveBook, PresentWorker, SteeredWorker
from antiphon.live.supervisor.messages import ChildState
from antiphon.types import Health, Member, Seconds, WorkerId, WorkerView


@dataclass(frozen=True, slots=True)
class CrewNow:
    """All workers, by id, those who are only asked for too, and the counts of who has joined.

    `held`: how many requests wait at the gateway for a worker, and for one that decodes.
    """

    workers: Mapping[WorkerId, SteeredWorker]
    views: Mapping[WorkerId, WorkerView]
    held: tuple[int, int]


class Crew:
    """Joins what supervisor and gateway know, at each look, with what `book` has ordered.

    A worker that an operator drains holds its device and is no capacity; one whose role an operator
    has chosen, or that this server's supervisor has not started, is pinned.
    """

    def __init__(
        self,
        members: Callable[[], Sequence[Member]],
        processes: Callable[[], Mapping[str, ChildState]],
        held: Callable[[], tuple[int, int]],
        book: MoveBook,
    ) -> None:
        self._members = members
        self._processes = processes
        self._held = held
        self.book = book

    def look(self, now: Seconds) -> CrewNow:
        """Who there is. Mutates the book: who serves now was added."""
        present = self.present()
        workers = self.book.look(present, now)
        views = {id: one.view for id, one in present.items() if one.view is not None}
        return CrewNow(workers, views, self._held())

    def present(self) -> dict[WorkerId, PresentWorker]:
        """Who there is now, by id."""
        members = {member.info.id: member for member in self._members()}
        processes = {WorkerId(name): state for name, state in self._processes().items()}
        return {
            id: _present(members.get(id), processes.get(id))
            for id in sorted(members.keys() | processes.keys())
        }


def _present(member: Member | None, process: ChildState | None) -> PresentWorker:
    """Of these two, at least one is there."""
    pinned = member is not None if process is None else process.pinned
    if member is None:
        assert process is not None
        return PresentWorker(role=process.role, pinned=pinned)
    return PresentWorker(
        role=member.info.role,
        view=member.view,
        life=member.info.incarnation,
        pinned=pinned,
        drained=member.health is Health.DRAINING,
    )
