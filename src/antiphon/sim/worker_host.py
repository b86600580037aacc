"""The life of a virtual worker as the sides of it that offer and take pages see it."""

from collections.abc import Sequence
from typing import Protocol

from antiphon.core.faults import Boundary, Damage, Node
from antiphon.core.scheduler import Scheduler
from antiphon.types import Incarnation, SchedulerEvent, Seconds, WorkerInfo

from .cluster_setup import ClusterSetup
from .network import Network
from .shadow_kv import ShadowKv
from .virtual_process import VirtualProcess


class WorkerHost(Protocol):
    """What `PageOwner` and `PageTaker` live in."""

    setup: ClusterSetup
    network: Network
    process: VirtualProcess
    memory: ShadowKv
    scheduler: Scheduler

    @property
    def incarnation(self) -> Incarnation:
        """The name under which it joined last, or is about to."""
        ...

    @property
    def now(self) -> Seconds:
        """What the process's clock shows."""
        ...

    @property
    def info(self) -> WorkerInfo:
        """What it says when it joins."""
        ...

    def note(self, what: object, /) -> None:
        """Into the log, with the time of the world."""
        ...

    def crossed(self, boundary: Boundary, sender: Node, receiver: Node, /) -> Damage | None:
        """Something that is no message passes a boundary. Returns what befalls it."""
        ...

    def say(self, events: Sequence[SchedulerEvent]) -> None:
        """Pass on what happened."""
        ...

    def wake(self) -> None:
        """Look for work as soon as all that is due now is done."""
        ...
