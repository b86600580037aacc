"""The injector on real processes, whose gateway is a script."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import pytest

from antiphon.drill.injector import Injector
from antiphon.drill.plan import DrillPlan, FaultKind
from antiphon.drill.process_fault import is_dead, is_stopped, process_of
from antiphon.drill.target import Attempt
from antiphon.errors import PeerError
from antiphon.live.admin.status import ClusterStatus, WorkerStatus
from antiphon.types import Role

PLAN = DrillPlan(kind=FaultKind.STOP, seed=1, every_s=0.05, stop_for_s=0.4)


class ScriptedTarget:
    """Mixed workers, each a process. Who stands still longer than `lost_after_s` is given up, and
    joins anew when it goes on; a dead one is started again under another id."""

    url = "http://127.0.0.1:9"
    model = "m"
    supervisor_pid = 1

    def __init__(self, workers: int, lost_after_s: float) -> None:
        self.processes = [self.start() for _ in range(workers)]
        self.lives = [1] * workers
        self.still_since: list[float | None] = [None] * workers
        self.most_stopped = 0
        self.lost_after_s = lost_after_s
        self.broken = False

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    async def status(self) -> ClusterStatus:
        if self.broken:
            raise PeerError("no answer")
        workers = tuple(self.worker(number) for number in range(len(self.processes)))
        self.most_stopped = max(self.most_stopped, len(self.stopped()))
        return ClusterStatus(
            model="m", version="1", state="ready", gateway_pid=1, open_requests=0, workers=workers
        )

    def worker(self, number: int) -> WorkerStatus:
        pid = self.processes[number].pid
        process = process_of(pid)
        now, health = time.monotonic(), "joined"
        if process is None or is_dead(process):
            self.processes[number].communicate()
            self.processes[number] = self.start()
            self.lives[number] += 1
            health = "lost"
        elif is_stopped(process):
            since = self.still_since[number] = self.still_since[number] or now
            health = "lost" if now - since >= self.lost_after_s else "joined"
        else:
            since, self.still_since[number] = self.still_since[number], None
            if since is not None and now - since >= self.lost_after_s:
                self.lives[number] += 1
        return WorkerStatus(
            id=f"mixed-{number}",
            role=Role.MIXED,
            health=health,
            pid=self.processes[number].pid,
            incarnation=None if health == "lost" else f"{number}.{self.lives[number]}",
        )

    def stopped(self) -> Sequence[int]:
        found = (process_of(process.pid) for process in self.processes)
        return [process.pid for process in found if process is not None and is_stopped(process)]

    async def gauges(self) -> Mapping[str, float]:
        return {}

    def attempts(self) -> Sequence[Attempt]:
        return ()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def target() -> Iterator[ScriptedTarget]:
    target = ScriptedTarget(workers=3, lost_after_s=60.0)
    yield target
    target.end()


async def injected(target: ScriptedTarget, plan: DrillPlan, faults: int) -> Injector:
    """The injector after it has begun at least so many faults, told to stop then."""
    over, said = asyncio.Event(), []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == faults:
            over.set()

    injector = Injector(target, plan, say)
    await injector.run(over)
    return injector


async def test_who_goes_on_before_anybody_notices_was_not_given_up(target: ScriptedTarget) -> None:
    injector = await injected(target, PLAN, faults=1)
    assert injector.injected
    for fault in injector.injected:
        assert fault.detected_s is None
        assert fault.back_s is not None
        assert fault.back_s >= PLAN.stop_for_s
    assert not target.stopped()


async def test_who_stands_still_for_long_is_given_up_and_joins_anew(target: ScriptedTarget) -> None:
    target.lost_after_s = 0.05
    injector = await injected(target, PLAN, faults=1)
    for fault in injector.injected:
        assert fault.detected_s is not None
        assert fault.back_s is not None
        assert 0.05 <= fault.detected_s <= fault.back_s


async def test_faults_overlap_and_one_worker_is_always_spared(target: ScriptedTarget) -> None:
    """Each is hit while the gateway still takes the others that stand still for joined."""
    injector = await injected(target, PLAN, faults=4)
    assert len(injector.injected) >= 4
    assert target.most_stopped == 2
    assert not target.stopped()


async def test_a_killed_worker_is_seen_through_to_its_next_life(target: ScriptedTarget) -> None:
    plan = DrillPlan(kind=FaultKind.KILL, seed=1, every_s=0.05)
    injector = await injected(target, plan, faults=2)
    assert len(injector.injected) >= 2
    assert all(fault.detected_s and fault.back_s for fault in injector.injected)


async def test_who_is_stopped_goes_on_if_the_drill_is_broken_off(target: ScriptedTarget) -> None:
    begun = asyncio.Event()
    plan = DrillPlan(kind=FaultKind.STOP, seed=1, every_s=0.05, stop_for_s=600.0)
    injector = Injector(target, plan, lambda _line: begun.set())
    running = asyncio.create_task(injector.run(asyncio.Event()))
    await begun.wait()
    while not target.stopped():
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not target.stopped()


async def test_who_is_stopped_goes_on_if_the_gateway_is_gone(target: ScriptedTarget) -> None:
    begun = asyncio.Event()
    plan = DrillPlan(kind=FaultKind.STOP, seed=1, every_s=0.05, stop_for_s=600.0)
    injector = Injector(target, plan, lambda _line: begun.set())
    running = asyncio.create_task(injector.run(asyncio.Event()))
    await begun.wait()
    target.broken = True
    with pytest.raises(ExceptionGroup) as caught:
        await running
    assert caught.group_contains(PeerError)
    assert not target.stopped()
