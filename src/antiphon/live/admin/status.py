"""A cluster at one moment, as `antiphon status --json` prints it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from antiphon.core.host_names import parse_expected
from antiphon.live.supervisor.messages import ChildState
from antiphon.types import STORE, Health, LevelStats, Member, Role, TierStats

EXPECTED = "expected"
"""The health of a worker that has never joined, or left, and is to join from another host."""


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker. What only a joined one has is None until it joins.

    `health` is the gateway's word (joined, suspect, draining), or what the process does meanwhile
    (starting, waiting, stopping, lost; expected: it is to join from another host). `host` is the
    one that it is on, if the cluster has several, and `transport` what carries its stream: unix
    or tls. `kv_used`: share of the KV memory that is in use.
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
    host: str | None = None
    transport: str | None = None


class TierUse(msgspec.Struct, frozen=True, kw_only=True):
    """How full a tier of the store is. A remote one's size is not known: 0. `levels`: of tier
    `peer`, where blocks cross the network encoded."""

    tier: str
    blocks: int
    used_bytes: int
    limit_bytes: int
    levels: tuple[LevelStats, ...] = ()


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The store's process. `health`: starting, ready, waiting, stopping, as of a worker's.

    One that was started elsewhere is reached at `socket`; it is ready, or away, and its `life` is
    not known. `tiers` are those that it has, if it is there.
    """

    health: str
    id: str = STORE
    pid: int | None = None
    life: int | None = 1
    problem: str = ""
    socket: str | None = None
    tiers: tuple[TierUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreNow:
    """The store as the gateway sees it. `socket` None: this server's own."""

    socket: str | None
    present: bool
    pid: int | None
    stats: tuple[TierStats, ...]


class DecisionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a planner decided `ago_s` seconds ago, and why. Roles are those that it counts.

    `target`: how many workers there should be; `needed`: before budget and calm; `moves`: in words.
    """

    ago_s: float
    target: dict[str, int]
    needed: dict[str, int]
    moves: tuple[str, ...]
    expected_per_s: float
    reason: str


class PlannerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The planner of pool sizes. `mode`: advise or act; `budget`: most workers of all roles.

    `decisions`: the newest one first, and before it the last ones with moves. `withheld`: why no
    worker is added at present though one is wanted; "" if nothing is wrong. `ready_s`: how long the
    last worker that was added took until it served; None: there was none.
    """

    mode: str
    budget: int
    decisions: tuple[DecisionStatus, ...] = ()
    withheld: str = ""
    ready_s: float | None = None


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway and all workers, by id. `open_requests`: taken and not settled.

    `store` None: there is none, or nobody looks for one yet, as no worker has joined. `planner`
    None: its mode is off, or no worker has joined.
    """

    model: str
    version: str
    state: str
    gateway_pid: int
    open_requests: int
    workers: tuple[WorkerStatus, ...]
    store: StoreStatus | None = None
    planner: PlannerStatus | None = None


def store_status(child: ChildState | None, now: StoreNow | None) -> StoreStatus | None:
    """The supervisor's knowledge of the store's process, and the gateway's of what it has."""
    tiers = tuple(map(_use, now.stats)) if now is not None else ()
    if child is not None:
        return StoreStatus(
            health=child.state,
            pid=child.pid,
            life=child.life,
            problem=child.problem,
            tiers=tiers,
        )
    if now is None or now.socket is None:
        return None
    return StoreStatus(
        health="ready" if now.present else "away",
        pid=now.pid,
        life=None,
        socket=now.socket,
        tiers=tiers,
    )


def worker_statuses(
    members: Sequence[Member], children: Mapping[str, ChildState], expected: Sequence[str] = ()
) -> tuple[WorkerStatus, ...]:
    """All knowledge in one list: who has joined, which processes there are, and who is `expected`
    from other hosts."""
    joined = {str(member.info.id): member for member in members}
    names = sorted({*joined, *children, *expected}, key=_by_role_and_number)
    return tuple(_status(name, joined.get(name), children.get(name)) for name in names)


def _use(stats: TierStats) -> TierUse:
    return TierUse(
        tier=stats.tier.value,
        blocks=stats.blocks,
        used_bytes=stats.used_bytes,
        limit_bytes=stats.limit_bytes,
        levels=stats.levels,
    )


def _status(name: str, member: Member | None, child: ChildState | None) -> WorkerStatus:
    if member is None and child is None:
        awaited = parse_expected(name)
        return WorkerStatus(
            id=name,
            role=Role.MIXED if awaited is None else awaited[1],
            health=EXPECTED,
            host=None if awaited is None else awaited[0],
        )
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
        host=info.at.host if info.at is not None else None,
        transport=member.transport or None,
    )


_ROLES = [Role.PREFILL.value, Role.DECODE.value, Role.MIXED.value]


def _by_role_and_number(name: str) -> tuple[int, str, int, str]:
    """In the order in which they were configured: decode-2 before decode-10."""
    host, _, own = name.rpartition(".")
    kind, _, number = own.rpartition("-")
    place = _ROLES.index(kind) if kind in _ROLES else len(_ROLES)
    return place, host + kind, int(number) if number.isascii() and number.isdigit() else -1, name
