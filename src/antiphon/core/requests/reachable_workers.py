"""The workers that the book may give commands to, and those that are being emptied."""

from dataclasses import dataclass

from antiphon.types import (
    FleetEvent,
    Health,
    HealthChanged,
    Incarnation,
    RoleChanged,
    Seconds,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
    WorkerReported,
)


@dataclass(slots=True)
class _Member:
    info: WorkerInfo
    draining: bool = False
    empty_by: Seconds | None = None
    """A drain is under way; what is left at that time is moved."""


class ReachableWorkers:
    """Who has joined and is not lost."""

    def __init__(self) -> None:
        self._members: dict[WorkerId, _Member] = {}

    def __contains__(self, worker: object) -> bool:
        return worker in self._members

    def takes(self, worker: WorkerId) -> bool:
        """May it be given something new?"""
        member = self._members.get(worker)
        return member is not None and not member.draining

    def lives(self, worker: WorkerId, incarnation: Incarnation) -> bool:
        """Is this the life that the worker leads now?"""
        member = self._members.get(worker)
        return member is not None and member.info.incarnation == incarnation

    def numerics(self, worker: WorkerId) -> str:
        """The numerics id of a member."""
        return self._members[worker].info.model.numerics

    def longest(self, worker: WorkerId) -> int:
        """Most tokens of prompt and output that a member can have: its memory may end first."""
        info = self._members[worker].info
        if info.kv is None:
            return info.max_model_len
        return min(info.max_model_len, info.kv.pages * info.kv.page_tokens)

    def replaces(self, info: WorkerInfo) -> bool:
        """Does another life of this worker count as alive?"""
        return info.id in self._members and not self.lives(info.id, info.incarnation)

    def observe(self, event: FleetEvent) -> bool:
        """Mutates. Returns False for what must have no effect.

        A drain under way is not undone, and a life begins once.
        """
        match event:
            case WorkerJoined(info):
                if info.id in self._members:
                    return False
                self._members[info.id] = _Member(info)
            case HealthChanged(worker, Health.LOST):
                return self._members.pop(worker, None) is not None
            case HealthChanged(worker, health):
                member = self._members.get(worker)
                if member is None or member.empty_by is not None:
                    return False
                member.draining = health is Health.DRAINING
            case WorkerReported(worker) | RoleChanged(worker):
                return worker in self._members
        return True

    # ── drains ───────────────────────────────────────────────────────────────────────────────

    def drain(self, worker: WorkerId, until: Seconds) -> None:
        """Mutates: this member gets nothing new, and is to be empty by then."""
        member = self._members[worker]
        member.draining, member.empty_by = True, until

    def drained(self, worker: WorkerId) -> None:
        """Mutates: the drain is over. It goes on to get nothing until it is JOINED again."""
        if (member := self._members.get(worker)) is not None:
            member.empty_by = None

    def drains(self) -> list[WorkerId]:
        """Whose drain is under way, in the order in which they joined."""
        return [name for name, member in self._members.items() if member.empty_by is not None]

    def next_drain(self) -> Seconds | None:
        """When `overdue` names somebody next."""
        times = (m.empty_by for m in self._members.values() if m.empty_by is not None)
        return min(times, default=None)

    def overdue(self, now: Seconds) -> list[WorkerId]:
        """Whose drain should be over, in the order in which they joined."""
        return [
            name
            for name, member in self._members.items()
            if member.empty_by is not None and member.empty_by <= now
        ]
