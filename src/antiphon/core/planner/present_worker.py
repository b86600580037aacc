"""What there is of a worker: the fact that a driver states, before any order of a planner."""

from dataclasses import dataclass

from antiphon.types import Role, Seconds, WorkerView


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentWorker:
    """A worker that has a device: its process starts, serves, or is about to start again.

    `view`: its newest counts; None: it does not serve. `life`: any name of the life that serves,
    so that another one is known for what it is. `drained`: an operator, or whoever it is, has it
    emptied: it gets nothing new. `since`: from when on it costs; None: since it was first seen.
    """

    role: Role
    view: WorkerView | None = None
    life: str = ""
    devices: int = 1
    pinned: bool = False
    drained: bool = False
    since: Seconds | None = None
