"""The processes of a cluster that a fault can hit, each in one of its lives."""

from collections.abc import Mapping
from dataclasses import dataclass

from antiphon.core.faults import GATEWAY, STORE
from antiphon.live.admin.status import EXPECTED, ClusterStatus
from antiphon.types import Health


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A worker, the gateway or the store now. `life`: unlike that of any other life of it; None:
    it is between two lives. `there`: it takes part (a worker has joined, the store is ready).
    """

    name: str
    role: str
    pid: int | None
    life: str | None
    there: bool
    lost: bool = False
    """A worker that the gateway has given up."""
    remote: bool = False
    """A worker that has joined from another host: its process may be on another machine."""


def lives_in(status: ClusterStatus) -> Mapping[str, Life]:
    """All of them, by name."""
    found = {
        worker.id: Life(
            name=worker.id,
            role=worker.role.value,
            pid=worker.pid,
            life=worker.incarnation,
            there=worker.health == Health.JOINED,
            lost=worker.health in (Health.LOST, EXPECTED),
            remote=worker.transport == "tls",
        )
        for worker in status.workers
    }
    everybody = all(life.there for life in found.values())
    found[GATEWAY] = Life(
        name=GATEWAY,
        role=GATEWAY,
        pid=status.gateway_pid,
        life=str(status.gateway_pid),
        there=everybody and status.state == "ready",
    )
    if status.store is not None:
        found[STORE] = Life(
            name=STORE,
            role=STORE,
            pid=status.store.pid,
            life=str(status.store.pid),
            there=status.store.health == "ready",
        )
    return found
