"""A fleet whose workers do what the test says, at once or when it lets them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from member_kit import IDLE, MODEL

from antiphon.errors import PeerError
from antiphon.live.supervisor.messages import ChildState
from antiphon.types import (
    Health,
    Incarnation,
    Member,
    Role,
    Seconds,
    WorkerId,
    WorkerInfo,
)

VIEW = replace(
    IDLE,
    running=2,
    waiting=1,
    free_pages=60,
    held_pages=30,
    cached_pages=10,
    peak_pages=40,
)


class ScriptedFleet:
    """Implements `Fleet`; `calls` lists what was asked. Drains wait while `gate` is shut."""

    def __init__(self, **roles: Role) -> None:
        self.state = "ready"
        self.open_requests = 3
        self.held = (0, 0)
        self.calls: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.comes_back = True
        self.fails: PeerError | None = None
        """What a flip ends with."""
        self._members = {
            name: Member(
                WorkerInfo(
                    id=WorkerId(name),
                    incarnation=Incarnation(f"{name}.1"),
                    model=MODEL,
                    max_model_len=64,
                    role=role,
                    pid=1000 + place,
                    cores=(place,),
                ),
                Health.JOINED,
                VIEW,
            )
            for place, (name, role) in enumerate(roles.items())
        }

    def members(self) -> Sequence[Member]:
        return list(self._members.values())

    async def drain(self, worker: WorkerId, timeout_s: Seconds) -> None:
        self.calls.append(f"drain {worker} {timeout_s:g}")
        self._change(worker, health=Health.DRAINING)
        await self.gate.wait()

    def resume(self, worker: WorkerId) -> None:
        self.calls.append(f"resume {worker}")
        self._change(worker, health=Health.JOINED)

    def leaves(self, worker: WorkerId) -> None:
        self.calls.append(f"leaves {worker}")

    async def set_role(self, worker: WorkerId, role: Role) -> None:
        self.calls.append(f"role {worker} {role}")
        if self.fails is not None:
            raise self.fails
        member = self._members[worker]
        self._change(worker, info=replace(member.info, role=role))

    async def joined(self, worker: WorkerId, former: Incarnation | None) -> None:
        self.calls.append(f"joined {worker} {former}")
        if not self.comes_back:
            await asyncio.Event().wait()
        info = replace(self._members[worker].info, incarnation=Incarnation(f"{worker}.2"))
        self._change(worker, info=info, health=Health.JOINED)

    def _change(self, worker: WorkerId, **fields: object) -> None:
        self._members[worker] = replace(self._members[worker], **fields)  # type: ignore[arg-type]


def child(name: str, role: Role, state: str = "ready", problem: str = "") -> ChildState:
    return ChildState(name=name, role=role, cores=(0,), state=state, pid=7, life=2, problem=problem)
