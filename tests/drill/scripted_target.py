"""A target of real processes, whose gateway is a script."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from antiphon.drill.process_fault import is_dead, is_stopped, process_of
from antiphon.drill.target import Attempt
from antiphon.errors import PeerError
from antiphon.live.admin.status import ClusterStatus, WorkerStatus
from antiphon.types import Role


class ScriptedTarget:
    """Mixed workers, each a process. Who stands still longer than `lost_after_s` is given up, and
    joins anew when it goes on; a dead one is started again under another id."""

    url = "http://127.0.0.1:9"
    model = "m"
    supervisor_pid = 1
    sockets = Path("/nowhere")

    def __init__(self, workers: int, lost_after_s: float) -> None:
        self.processes = [self.start() for _ in range(workers)]
        self.lives = [1] * workers
        self.still_since: list[float | None] = [None] * workers
        self.most_stopped = 0
        self.lost_after_s = lost_after_s
        self.broken = False
        self.counters: dict[str, float] = {}
        self.reads = 0
        self.orders: list[tuple[str, str]] = []

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    async def status(self) -> ClusterStatus:
        if self.broken:
            raise PeerError("no answer")
        self.reads += 1
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

    async def samples(self) -> Mapping[str, float]:
        self.reads += 1
        return dict(self.counters)

    async def read(self) -> None:
        """Somebody has read status or counters twice since: what was there before is known."""
        until = self.reads + 2
        while self.reads < until:
            await asyncio.sleep(0.001)

    async def order(self, name: str, deed: str, timeout_s: float, **more: str) -> None:
        self.orders.append((name, deed))

    def attempts(self) -> Sequence[Attempt]:
        return ()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
