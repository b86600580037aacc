"""A cluster at one moment, as `antiphon status --json` prints it."""

from collections.abc import Mapping, Sequence

import msgspec

from antiphon.live.supervisor.messages import ChildState
from antiphon.types import Health, Member, Role


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker. What only a joined one has is None until it joins.

    `health` is the gateway's word (joined, suspect, draining), or what the process does meanwhile
    (starting, waiting, stopping, lost). `kv_used`: share of the KV memory that is in use.
    """

    id: str
    role: Role
    health: str
    pid: int | None = None
    cores: tuple[int, ...] = ()
    running: int | None = None
    waiting: int | None = None
    kv_used: float | None = None
    incarnation: str | None = None
    life: int = 1
    problem: str = ""


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The store's process. `health`: starting, ready, waiting, stopping, as of a worker's."""

    health: str
    pid: int | None = None
    life: int = 1
    problem: str = ""


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway and all workers, by id. `open_requests`: taken and not settled.

    `store` None: none, or one that this server did not start.
    """

    model: str
    version: str
    state: str
    gateway_pid: int
    open_requests: int
    workers: tuple[WorkerStatus, ...]
    store: StoreStatus | None = None


def store_status(child: ChildState | None) -> StoreStatus | None:
    """The supervisor's knowledge of the store."""
    if child is None:
        return None
    return StoreStatus(health=child.state, pid=child.pid, life=child.life, problem=child.problem)


def worker_statuses(
    members: Sequence[Member], children: Mapping[str, ChildState]
) -> tuple[WorkerStatus, ...]:
    """Both sides' knowledge in one list: who has joined, and which processes there are."""
    joined = {str(member.info.id): member for member in members}
    names = sorted(joined.keys() | children.keys(), key=_by_role_and_number)
    return tuple(_status(name, joined.get(name), children.get(name)) for name in names)


def _status(name: str, member: Member | None, child: ChildState | None) -> WorkerStatus:
    if member is None:
        assert child is not None
        return WorkerStatus(
            id=name,
            role=child.role,
            health=child.state if child.state != "ready" else Health.LOST.value,
            pid=child.pid,
            cores=child.cores,
            life=child.life,
            problem=child.problem,
        )
    info, view = member.info, member.view
    return WorkerStatus(
        id=name,
        role=info.role,
        health=member.health.value,
        pid=info.pid or None,
        cores=info.cores,
        running=view.running,
        waiting=view.waiting,
        kv_used=round(view.held_pages / view.total_pages, 4),
        incarnation=info.incarnation,
        life=child.life if child else 1,
        problem=child.problem if child else "",
    )


_ROLES = [Role.PREFILL.value, Role.DECODE.value, Role.MIXED.value]


def _by_role_and_number(name: str) -> tuple[int, str, int, str]:
    """In the order in which they were configured: decode-2 before decode-10."""
    kind, _, number = name.rpartition("-")
    place = _ROLES.index(kind) if kind in _ROLES else len(_ROLES)
    return place, kind, int(number) if number.isascii() and number.isdigit() else -1, name
