"""The workers of a live server as its planner sees them.

supervisor ── processes ──┐
gateway ────── members ───┼──► Crew ──► each as a SteeredWorker, and its newest counts
hand ── asked, leaving ───┘
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from antiphon.core.planner import SteeredWorker
from antiphon.live.supervisor.messages import ChildState
from antiphon.types import Health, Incarnation, Member, Role, Seconds, WorkerId, WorkerView


@dataclass(frozen=True, slots=True)
class CrewNow:
    """All workers, by id, those who are only asked for too, and the counts of who has joined.

    `held`: how many requests wait at the gateway for a worker, and for one that decodes.
    """

    workers: Mapping[WorkerId, SteeredWorker]
    views: Mapping[WorkerId, WorkerView]
    held: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Serves:
    """Since when a worker serves in that role, in this life."""

    incarnation: Incarnation
    role: Role
    since: Seconds


class Crew:
    """Joins what supervisor and gateway know, at each look, with what the planner has begun.

    A worker that an operator drains holds its device and is no capacity; one whose role an operator
    has chosen, or that this server's supervisor has not started, is pinned.
    """

    def __init__(
        self,
        members: Callable[[], Sequence[Member]],
        processes: Callable[[], Mapping[str, ChildState]],
        held: Callable[[], tuple[int, int]],
    ) -> None:
        self._members = members
        self._processes = processes
        self._held = held
        self._asked: dict[WorkerId, Role] = {}
        self._leaving: dict[WorkerId, Role | None] = {}
        self._since: dict[WorkerId, Seconds] = {}
        self._serves: dict[WorkerId, _Serves] = {}

    def asks(self, worker: WorkerId, role: Role) -> None:
        """The supervisor is asked for this worker. Mutates."""
        self._asked[worker] = role

    def refused(self, worker: WorkerId) -> None:
        """It is not there and will not be. Mutates."""
        self._asked.pop(worker, None)

    def leaves(self, worker: WorkerId, becomes: Role | None) -> None:
        """The planner has it drained: it goes (None), or gets another role. Mutates."""
        self._leaving[worker] = becomes

    def stays(self, worker: WorkerId) -> None:
        """That is over, or was given up. Mutates."""
        self._leaving.pop(worker, None)

    def look(self, now: Seconds) -> CrewNow:
        """Who there is. Mutates: it remembers since when."""
        members = {member.info.id: member for member in self._members()}
        processes = {WorkerId(name): state for name, state in self._processes().items()}
        for id in processes:
            self._asked.pop(id, None)
        ids = sorted(members.keys() | processes.keys() | self._asked.keys())
        for known in (self._since, self._serves):
            for id in known.keys() - ids:
                del known[id]
        return CrewNow(
            {id: self._one(id, members.get(id), processes.get(id), now) for id in ids},
            {id: member.view for id, member in members.items()},
            self._held(),
        )

    def _one(
        self, id: WorkerId, member: Member | None, process: ChildState | None, now: Seconds
    ) -> SteeredWorker:
        if member is not None:
            role = member.info.role
        else:
            role = self._asked[id] if process is None else process.role
        drained = member is not None and member.health is Health.DRAINING
        return SteeredWorker(
            role=role,
            since=self._since.setdefault(id, now),
            ready_at=now if member is None else self._serving_since(member, now),
            pinned=process.pinned if process is not None else member is not None,
            draining=drained or id in self._leaving,
            becomes=self._leaving.get(id),
        )

    def _serving_since(self, member: Member, now: Seconds) -> Seconds:
        info = member.info
        before = self._serves.get(info.id)
        if before is None or (before.incarnation, before.role) != (info.incarnation, info.role):
            before = self._serves[info.id] = _Serves(info.incarnation, info.role, now)
        return before.since
