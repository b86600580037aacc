"""A server without processes: a fleet, a supervisor and a clock that obey the test."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from member_kit import IDLE, MODEL

from antiphon.core.config import build
from antiphon.core.planner import Decision, Move, MoveBook, Observation, Planner, Watch
from antiphon.core.worker_spec import planned_roles, worker_specs
from antiphon.live.admin.operations import Operations
from antiphon.live.gateway.planner_metrics import PlannerCounts
from antiphon.live.steering import Crew, Hand, Steering
from antiphon.live.supervisor.messages import (
    AddWorker,
    ChildState,
    EndWorker,
    FromChild,
    KeepRole,
)
from antiphon.types import (
    Config,
    Health,
    Incarnation,
    Member,
    Role,
    Seconds,
    WorkerId,
    WorkerInfo,
)


def config(**planner: object) -> Config:
    """One prefill and one decode worker, and a planner that decides each second."""
    given = {"mode": "act", "budget": 4, "interval_s": 1.0, "ready_s": 2.0, **planner}
    cluster = {"prefill": 1, "decode": 1, "heartbeat_s": 0.25}
    return build({"cluster": cluster, "planner": given})


class Scripted(Planner):
    """Decides what the test has put into `moves`; it looks at nothing, but keeps what it saw."""

    def __init__(self) -> None:
        self.moves: tuple[Move, ...] = ()
        self.seen: list[Observation] = []

    def decide(self, seen: Observation) -> Decision:
        self.seen.append(seen)
        moves, self.moves = self.moves, ()
        return Decision(
            at=seen.at,
            target=((Role.PREFILL, 1), (Role.DECODE, 2)),
            wanted=((Role.PREFILL, 1), (Role.DECODE, 3)),
            moves=moves,
            expected_per_s=2.5,
            reason="it is in the script",
            ask_again_at=seen.at + 1.0,
        )


class LivePlant:
    """Implements `admin.operations.Fleet`. Time passes in `step` alone.

    A worker that is asked for joins `start_s` later, or is refused with `no_place`. One that drains
    is empty once its view says that nothing runs there. Whatever is told to the supervisor is in
    `told`; what must never happen fails at once.
    """

    def __init__(self, given: Config, planner: Planner, *, start_s: Seconds = 2.0) -> None:
        self.now: Seconds = 100.0
        self.state, self.open_requests, self.held = "ready", 0, (0, 0)
        self.told: list[FromChild] = []
        self.no_place = ""
        self.operations = Operations("tiny", self._tell, 60.0)
        self.operations.attach(self)
        self._start_s = start_s
        self._children: dict[str, ChildState] = {}
        self._joined: dict[str, Member] = {}
        self._joins_at: dict[str, Seconds] = {}
        self._refusals: list[tuple[int, str]] = []
        self._asked: dict[str, int] = {}
        self._changed = asyncio.Event()
        for spec in worker_specs(given.cluster, ()):
            self._start(spec.id, spec.role, 0.0)
        self._publish()
        self.planner = planner
        self.counts = PlannerCounts(given.planner.budget or 0)
        self.book, known = MoveBook(self.counts.budget), self.operations
        crew = Crew(known.members, known.processes, known.held, self.book)
        drain_s = given.planner.drain_s
        hand = Hand(self.operations, self.book, self._tell, self.counts, drain_s=drain_s)
        self.steering = Steering(
            planner,
            Watch(planned_roles(given.cluster), at=self.now),
            crew,
            hand if given.planner.mode == "act" else None,
            self.counts,
            config=given,
            clock=lambda: self.now,
        )
        self.operations.watch_planner(self.steering.status)
        self._deeds: set[asyncio.Task[None]] = set()

    # ── what the test does ───────────────────────────────────────────────────────────────────

    async def step(self, seconds: Seconds = 1.0) -> None:
        """Let time pass, and everybody do what is due."""
        self.now += seconds
        for name in [name for name, at in self._joins_at.items() if at <= self.now]:
            del self._joins_at[name]
            self._join(name)
        refusals, self._refusals = self._refusals, []
        for order, why in refusals:
            self.steering.not_added(order, why)
        self.steering.look(self._spawn)
        await settled()

    def load(self, name: str, **counts: Any) -> None:
        """What a worker reports from now on."""
        self._change(name, view=replace(self._joined[name].view, **counts))

    def die(self, name: str) -> None:
        """Its process ends before it was ever ready."""
        del self._joins_at[name]
        del self._children[name]
        self._publish()
        order = self._asked.get(name, 0)
        self.steering.not_added(order, f"{name} could not be started: exit code 1")

    def names(self) -> list[str]:
        """All workers that the supervisor has."""
        return sorted(self._children)

    def orders(self, kind: type[FromChild]) -> list[str]:
        """The workers of all messages of that kind to the supervisor."""
        return [one.worker for one in self.told if isinstance(one, kind)]  # type: ignore[attr-defined]

    async def close(self) -> None:
        """Give up what is under way."""
        for deed in self._deeds:
            deed.cancel()
        await asyncio.gather(*self._deeds, return_exceptions=True)

    # ── the supervisor ───────────────────────────────────────────────────────────────────────

    def _tell(self, message: FromChild) -> None:
        self.told.append(message)
        match message:
            case AddWorker(name, _, order) if self.no_place:
                self._refusals.append((order, self.no_place))
            case AddWorker(name, role, order):
                self._asked[name] = order
                assert name not in self._children, "it is there already"
                assert len(self._children) < self.counts.budget
                self._start(name, role, self._start_s)
                self._publish()
            case EndWorker(name, life):
                assert life == self._children[name].life
                member = self._joined.pop(name)
                assert member.health is Health.DRAINING
                assert member.view.running == 0, "it was not empty"
                assert not self._children.pop(name).pinned
                self._publish()
            case KeepRole(name, role, pinned):
                pinned = pinned or self._children[name].pinned
                self._children[name] = msgspec.structs.replace(
                    self._children[name], role=role, pinned=pinned
                )
                self._publish()
            case _:
                pass

    def _start(self, name: str, role: Role, start_s: Seconds) -> None:
        self._children[name] = ChildState(
            name=name, role=role, cores=(), state="starting", pid=1, life=1
        )
        self._joins_at[name] = self.now + start_s
        if not start_s:
            del self._joins_at[name]
            self._join(name)

    def _join(self, name: str) -> None:
        child = self._children[name]
        self._children[name] = msgspec.structs.replace(child, state="ready")
        info = WorkerInfo(
            id=WorkerId(name),
            incarnation=Incarnation(f"{name} at {self.now}"),
            model=MODEL,
            max_model_len=64,
            role=child.role,
        )
        self._joined[name] = Member(info, Health.JOINED, IDLE)
        self._publish()

    def _publish(self) -> None:
        self.operations.children(list(self._children.values()))

    def _spawn(self, deed: Any) -> None:
        task = asyncio.create_task(deed)
        self._deeds.add(task)
        task.add_done_callback(self._deeds.discard)

    # ── the fleet ────────────────────────────────────────────────────────────────────────────

    def members(self) -> Sequence[Member]:
        return list(self._joined.values())

    async def drain(self, worker: WorkerId, timeout_s: Seconds) -> None:
        self._change(worker, health=Health.DRAINING)
        while worker in self._joined and self._joined[worker].view.running:
            await self._changed.wait()

    def resume(self, worker: WorkerId) -> None:
        if worker in self._joined:
            self._change(worker, health=Health.JOINED)

    def leaves(self, worker: WorkerId) -> None:
        assert self._joined[worker].health is Health.DRAINING

    async def set_role(self, worker: WorkerId, role: Role) -> None:
        self._change(worker, info=replace(self._joined[worker].info, role=role))

    async def joined(self, worker: WorkerId, former: Incarnation | None) -> None:
        raise NotImplementedError

    def _change(self, name: str, **facts: Any) -> None:
        self._joined[name] = replace(self._joined[name], **facts)
        self._changed.set()
        self._changed = asyncio.Event()


async def settled() -> None:
    """All tasks have gone as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


def until(plant: LivePlant, condition: Callable[[], bool], most: int = 100) -> Any:
    """Steps until it holds; fails if it does not come to that."""

    async def go() -> None:
        for _ in range(most):
            if condition():
                return
            await plant.step()
        raise AssertionError(f"not within {most} s: {plant.operations.status()}")

    return go()


def moves(plant: LivePlant, *given: Move) -> None:
    assert isinstance(plant.planner, Scripted)
    plant.planner.moves = given


def pool(plant: LivePlant, role: Role) -> tuple[int, int, int, int]:
    """Ready, starting, draining and cold workers, as the planner saw them last."""
    assert isinstance(plant.planner, Scripted)
    one = plant.planner.seen[-1].pool(role)
    return one.ready, one.starting, one.draining, one.cold
