"""A worker that a planner may move, from when it is asked for until its device is free again."""

from collections.abc import Mapping
from dataclasses import dataclass

from antiphon.types import Role, Seconds, WorkerId, WorkerView


@dataclass(slots=True)
class SteeredWorker:
    """`role`: the one that it serves in. `since`: from when on it costs; `ready_at`: from when on
    it serves in that role. `pinned`: an operator's own. `draining`: it gets nothing new, and
    `becomes` is its role after that; None: it goes.
    """

    role: Role
    since: Seconds
    ready_at: Seconds
    devices: int = 1
    pinned: bool = False
    draining: bool = False
    becomes: Role | None = None

    @property
    def heading(self) -> Role:
        """The role that it has, or is on its way to."""
        return self.becomes or self.role


def to_leave(
    workers: Mapping[WorkerId, SteeredWorker],
    views: Mapping[WorkerId, WorkerView],
    role: Role,
    count: int,
) -> list[WorkerId]:
    """At most `count` workers of a role that a planner may take away, best first.

    Those with least to do; the newest first among equals. Who does not serve (it has no view),
    drains already or is an operator's own is left alone.
    """
    free = [
        id
        for id, one in workers.items()
        if one.role is role and not one.draining and not one.pinned and id in views
    ]
    free.sort(key=lambda id: (views[id].running, -workers[id].since, id))
    return free[:count]
