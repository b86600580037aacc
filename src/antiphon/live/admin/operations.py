"""Draining, flipping and restarting workers of a live cluster, without losing a request.

drain     nothing new goes there; what runs finishes, or moves elsewhere at the deadline
role      drain, another role, and it takes requests again
restart   drain, a new process, and it is back when it has joined
end       drain, and its process ends for good; only a planner asks for that
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from antiphon import __version__
from antiphon.core.host_names import is_worker_on
from antiphon.errors import ClientError, PeerError
from antiphon.live.supervisor.messages import (
    ChildState,
    EndWorker,
    FromChild,
    KeepDrained,
    KeepRole,
    Restart,
)
from antiphon.types import STORE, Health, Incarnation, Member, Role, Seconds, WorkerId

from .link_status import link_statuses
from .status import (
    ClusterStatus,
    PlannerStatus,
    StoreNow,
    StoreStatus,
    WorkerStatus,
    host_store_statuses,
    store_status,
    worker_statuses,
)


class Fleet(Protocol):
    """What the gateway can do with its workers."""

    @property
    def state(self) -> str:
        """Whether the gateway takes requests: ready, draining, unhealthy."""
        ...

    @property
    def open_requests(self) -> int:
        """Requests that are not settled."""
        ...

    @property
    def held(self) -> tuple[int, int]:
        """Requests that wait for a worker, and those with an offer for one that decodes."""
        ...

    def members(self) -> Sequence[Member]:
        """The workers that have joined."""
        ...

    async def drain(self, worker: WorkerId, timeout_s: Seconds) -> None:
        """Give it nothing new, and return when it has nothing left.

        Raises `PeerError` if the worker is lost meanwhile.
        """
        ...

    def resume(self, worker: WorkerId) -> None:
        """Give requests to a drained worker again."""
        ...

    def leaves(self, worker: WorkerId) -> None:
        """A drained worker is about to end, which is no loss."""
        ...

    async def set_role(self, worker: WorkerId, role: Role) -> None:
        """Give a drained worker another role. Raises `PeerError` if it is lost meanwhile."""
        ...

    async def joined(self, worker: WorkerId, former: Incarnation | None) -> None:
        """Wait for the worker, in a life other than `former`."""
        ...


class _NoFleet:
    """No worker has joined yet. Implements `Fleet`."""

    state = "loading"
    open_requests = 0
    held = (0, 0)

    def members(self) -> Sequence[Member]:
        return ()

    async def drain(self, worker: WorkerId, timeout_s: Seconds) -> None:
        raise PeerError(f"{worker} has not joined")

    def resume(self, worker: WorkerId) -> None:
        raise PeerError(f"{worker} has not joined")

    def leaves(self, worker: WorkerId) -> None:
        raise PeerError(f"{worker} has not joined")

    async def set_role(self, worker: WorkerId, role: Role) -> None:
        raise PeerError(f"{worker} has not joined")

    async def joined(self, worker: WorkerId, former: Incarnation | None) -> None:
        raise PeerError("no worker has joined yet: what is started can't be restarted")


class Operations:
    """All that an operator can ask. Raises `ClientError` if it can't be done as asked (404, 409),
    `PeerError` if it went wrong.

    `tell` reaches the supervisor; `start_timeout_s` is how long a restarted worker may take. There
    is no fleet before `attach`, when the first worker has joined.
    """

    def __init__(
        self, served_name: str, tell: Callable[[FromChild], None], start_timeout_s: Seconds
    ) -> None:
        self._fleet: Fleet = _NoFleet()
        self._served_name = served_name
        self._tell = tell
        self._start_timeout_s = start_timeout_s
        self._children: Mapping[str, ChildState] = {}
        self._store: ChildState | None = None
        self._store_now: Callable[[], StoreNow | None] = lambda: None
        self._host_stores_now: Callable[[], Mapping[str, StoreNow]] = dict
        self._news = asyncio.Event()
        self._busy: dict[str, str] = {}
        self._planner_now: Callable[[], PlannerStatus | None] = lambda: None
        self.expected: Sequence[str] = ()
        """Workers that are to join from other hosts."""

    def attach(
        self,
        fleet: Fleet,
        store_now: Callable[[], StoreNow | None] = lambda: None,
        host_stores_now: Callable[[], Mapping[str, StoreNow]] = dict,
    ) -> None:
        """The workers that the gateway has from now on, and how it sees the store, if any, and
        those of other hosts."""
        self._fleet = fleet
        self._store_now = store_now
        self._host_stores_now = host_stores_now

    def children(self, states: Sequence[ChildState], store: ChildState | None = None) -> None:
        """The supervisor's newest word on the workers' processes, and the store's."""
        self._children = {state.name: state for state in states}
        self._store = store
        self._news.set()

    def watch_planner(self, planner_now: Callable[[], PlannerStatus]) -> None:
        """The planner that runs from now on."""
        self._planner_now = planner_now

    def members(self) -> Sequence[Member]:
        """The workers that have joined."""
        return self._fleet.members()

    def held(self) -> tuple[int, int]:
        """Requests that wait for a worker, and those with an offer for one that decodes."""
        return self._fleet.held

    def processes(self) -> Mapping[str, ChildState]:
        """The supervisor's newest word on the workers' processes, by name."""
        return self._children

    def store_changed(self) -> None:
        """The gateway may see the store otherwise than before."""
        self._news.set()

    @property
    def busy(self) -> bool:
        """Whether an operator waits for something."""
        return bool(self._busy)

    def status(self) -> ClusterStatus:
        """Everything, now."""
        return ClusterStatus(
            model=self._served_name,
            version=__version__,
            state=self._fleet.state,
            gateway_pid=os.getpid(),
            open_requests=self._fleet.open_requests,
            workers=worker_statuses(self._fleet.members(), self._children, self.expected),
            store=store_status(self._store, self._store_now()),
            host_stores=host_store_statuses(self._host_stores_now()),
            links=link_statuses(self._fleet.members()),
            planner=self._planner_now(),
        )

    async def drain(self, name: str, timeout_s: Seconds) -> WorkerStatus:
        """Drain a worker and leave it so."""
        member = self._member(name)
        self._check_not_last(member, Role.PREFILL, "be drained")
        with self._alone(name, "drained"):
            self._tell(KeepDrained(name, True))
            try:
                await self._fleet.drain(member.info.id, timeout_s)
            except PeerError:
                self._tell(KeepDrained(name, False))
                raise
        return self._one(name)

    async def set_role(
        self, name: str, role: Role, timeout_s: Seconds, *, pinned: bool = True
    ) -> WorkerStatus:
        """Flip a live worker; one that has the role is left as it is, but takes requests again.

        `pinned`: an operator wants it so, and no planner takes it for another role.
        """
        member = self._member(name)
        self._check_not_last(member, role, f"become a {role} worker")
        with self._alone(name, "given another role"):
            try:
                if member.info.role is not role:
                    await self._fleet.drain(member.info.id, timeout_s)
                    await self._fleet.set_role(member.info.id, role)
                    self._tell(KeepRole(name, role, pinned))
            finally:
                self._fleet.resume(member.info.id)
                self._tell(KeepDrained(name, False))
        return self._one(name)

    async def restart(self, name: str, timeout_s: Seconds) -> WorkerStatus | StoreStatus:
        """Drain a worker, start its process anew, and return when that has joined. Or the store's:
        what needs it meanwhile is computed."""
        if name == STORE:
            return await self._restart_store()
        if name not in self._children:
            raise _not_ours(self._member(name))
        members = {str(member.info.id): member for member in self._fleet.members()}
        member = members.get(name)
        life = self._children[name].life
        with self._alone(name, "restarted"):
            if member is not None:
                with contextlib.suppress(PeerError):
                    await self._fleet.drain(member.info.id, timeout_s)
            former = member.info.incarnation if member is not None else None
            self._tell(Restart(name, life))
            try:
                async with asyncio.timeout(self._start_timeout_s):
                    await self._fleet.joined(WorkerId(name), former)
            except TimeoutError:
                raise PeerError(
                    f"{name} did not join within {self._start_timeout_s:g} s after its restart: "
                    f"the server's log says why"
                ) from None
        return self._one(name)

    async def end(self, name: str, timeout_s: Seconds) -> None:
        """Drain a worker, end its process, and return when that is gone.

        One that could not be drained takes requests again. Raises `PeerError` if it died before
        its process was told: its next life serves.
        """
        member = self._member(name)
        if name not in self._children:
            raise _not_ours(member)
        self._check_not_last(member, Role.PREFILL, "end")
        life = self._children[name].life
        with self._alone(name, "ended"):
            try:
                await self._fleet.drain(member.info.id, timeout_s)
            except BaseException:
                self._fleet.resume(member.info.id)
                raise
            self._fleet.leaves(member.info.id)
            self._tell(EndWorker(name, life))
            while name in self._children:
                if self._children[name].life != life:
                    raise PeerError(f"{name} died before it could be ended, and starts again")
                self._news.clear()
                await self._news.wait()

    async def _restart_store(self) -> StoreStatus:
        if self._store is None:
            there = self._store_now()
            socket = there.socket if there is not None else None
            remedy = f": restart the one at {socket} where it runs" if socket else ""
            raise ClientError(f"this server has started no store{remedy}", status=409)
        former = self._store.life
        with self._alone(STORE, "restarted"):
            self._tell(Restart(STORE, former))
            try:
                async with asyncio.timeout(self._start_timeout_s):
                    return await self._store_after(former)
            except TimeoutError:
                raise PeerError(
                    f"the store was not ready within {self._start_timeout_s:g} s after its "
                    f"restart: the server's log says why"
                ) from None

    async def _store_after(self, life: int) -> StoreStatus:
        """The store, ready and seen by the gateway in a life after this one. Raises `PeerError` if
        that life ends before it is."""
        while (ready := self._ready_after(life)) is None:
            self._news.clear()
            await self._news.wait()
        return ready

    def _ready_after(self, life: int) -> StoreStatus | None:
        child, seen = self._store, self._store_now()
        if child is None or child.life <= life:
            return None
        if child.state == "waiting":
            raise PeerError(f"the store did not start, and is tried again: {child.problem}")
        unseen = seen is not None and not (seen.present and seen.pid in (None, child.pid))
        return None if child.state != "ready" or unseen else store_status(child, seen)

    def _member(self, name: str) -> Member:
        members = {str(member.info.id): member for member in self._fleet.members()}
        if name in members:
            return members[name]
        if name in self._children:
            raise ClientError(
                f"{name} has not joined (its process: {self._children[name].state}): wait, or see "
                f"the server's log",
                status=409,
            )
        known = ", ".join(sorted(members.keys() | self._children.keys())) or "none"
        raise ClientError(f"there is no worker {name[:64]!r}: known are {known}", status=404)

    def _check_not_last(self, member: Member, role: Role, verb: str) -> None:
        """Somebody else decodes, unless the worker itself still does with its new role."""
        others = [
            other
            for other in self._fleet.members()
            if other.info.id != member.info.id
            and other.health is Health.JOINED
            and other.info.role is not Role.PREFILL
        ]
        if role is Role.PREFILL and member.info.role is not Role.PREFILL and not others:
            raise ClientError(
                f"{member.info.id} can't {verb}: it is the last worker that decodes. Give another "
                f"one that role first",
                status=409,
            )

    @contextlib.contextmanager
    def _alone(self, name: str, deed: str) -> Iterator[None]:
        if name in self._busy:
            raise ClientError(f"{name} is being {self._busy[name]}: wait for that", status=409)
        self._busy[name] = deed
        try:
            yield
        finally:
            del self._busy[name]

    def _one(self, name: str) -> WorkerStatus:
        for worker in self.status().workers:
            if worker.id == name:
                return worker
        raise PeerError(f"{name} was lost")


def _not_ours(member: Member) -> ClientError:
    """No process of this server's supervisor."""
    at, name = member.info.at, member.info.id
    if at is not None and is_worker_on(at.host, name):
        problem = f"{name} runs on host {at.host}: restart or end it there"
    else:
        problem = f"{name} was not started by this server's supervisor"
    return ClientError(problem, status=409)
