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


class ReachableWorkers:
    """Who has joined and is not lost."""

    def __init__(self) -> None:
        self._members: dict[WorkerId, _Member] = {}
        self._empty_by: dict[WorkerId, Seconds] = {}
        """Members whose drain is under way; what is left at that time is moved. Few, and asked for
        with each fact, of which thousands of members say many."""

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
                self._empty_by.pop(worker, None)
                return self._members.pop(worker, None) is not None
            case HealthChanged(worker, health):
                member = self._members.get(worker)
                if member is None or worker in self._empty_by:
                    return False
                member.draining = health is Health.DRAINING
            case WorkerReported(worker) | RoleChanged(worker):
                return worker in self._members
        return True

    # ── drains ───────────────────────────────────────────────────────────────────────────────

    def drain(self, worker: WorkerId, until: Seconds) -> None:
        """Mutates: this member gets nothing new, and is to be empty by then."""
        self._members[worker].draining = True
        self._empty_by[worker] = until

    def drained(self, worker: WorkerId) -> None:
        """Mutates: the drain is over. It goes on to get nothing until it is JOINED again."""
        self._empty_by.pop(worker, None)

    def drains(self) -> list[WorkerId]:
        """Whose drain is under way, in the order in which they joined."""
        if not self._empty_by:
            return []
        return [name for name in self._members if name in self._empty_by]

    def next_drain(self) -> Seconds | None:
        """When `overdue` names somebody next."""
        return min(self._empty_by.values()) if self._empty_by else None

    def overdue(self, now: Seconds) -> list[WorkerId]:
        """Whose drain should be over, in the order in which they joined."""
        return [name for name in self.drains() if self._empty_by[name] <= now]
