"""A worker that a planner may move, from when it is asked for until its device is free again."""

from dataclasses import dataclass, field

from antiphon.types import Role, Seconds, WorkerView

from .fleet import Pool


@dataclass(slots=True)
class SteeredWorker:
    """`since`: from when on it costs. `pinned`: an operator's own. `becomes`: after its drain.

    `before`: its counts when the interval began, None before it served.
    """

    pool: Pool
    since: Seconds
    ready_at: Seconds
    pinned: bool = False
    draining: bool = False
    becomes: Role | None = None
    before: WorkerView | None = field(default=None, repr=False)

    @property
    def role(self) -> Role:
        """The one that it has, or is on its way to."""
        return self.becomes or self.pool.role
