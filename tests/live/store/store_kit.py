"""A real store: as a process, or on this loop, where a test can hold it up.

    async with real_store(folder, memory_bytes="1MiB") as store, FakeWorker(store.path) as worker:
        keys = await worker.put_prompt(blocks=3)

    async with in_use(folder, **on_disk(folder)) as (worker, gateway):
        keys = await worker.put_prompt(blocks=3)

`folder` must be private (mode 0700), and its path short.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_callers import CLUSTER, DEADLINE_S, FakeGateway, FakeWorker, until

from antiphon.core.config import as_mapping, build
from antiphon.errors import PeerError
from antiphon.live.socket_folder import STORE_SOCKET
from antiphon.live.store_process import serve_store, slower_tiers
from antiphon.live.supervisor.child_process import ChildProcess, command_of
from antiphon.live.supervisor.messages import Launch, Ready, Refused, Stop
from antiphon.store.remote_values import RemoteValues
from antiphon.types.kv_store import STORE

# ── the process ──────────────────────────────────────────────────────────────────────────────────


class RealStore:
    """`python -m antiphon.live.store_process`, as the supervisor starts it."""

    def __init__(
        self,
        folder: Path,
        store: dict[str, object],
        cluster: dict[str, object],
        pool: dict[str, object] | None = None,
    ) -> None:
        self.folder = folder
        self.path = folder / STORE_SOCKET
        self.log: list[str] = []
        self.refused = ""
        self._config = build(
            {"store": store, "cluster": {**CLUSTER, **cluster}, "store_pool": pool or {}}
        )
        self._child: ChildProcess | None = None
        self._lives = 0

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    async def start(self) -> None:
        """Returns when it is ready. Raises `PeerError` if it refuses or ends."""
        self._lives += 1
        launch = Launch(
            name=STORE,
            config=as_mapping(self._config),
            sockets=str(self.folder),
            life=self._lives,
        )
        command = command_of("antiphon.live.store_process", STORE)
        self._child = await ChildProcess.start(command, launch, self.log.append, time.monotonic)
        async with asyncio.timeout(4 * DEADLINE_S):
            async for message in self._child.messages():
                match message:
                    case Ready():
                        return
                    case Refused(text):
                        self.refused = text
        await self._child.ended()
        raise PeerError(f"the store did not get ready: {self.refused or self.log}")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    async def stop(self) -> int:
        """As the supervisor does it; its exit code."""
        assert self._child is not None
        self._child.tell(Stop())
        return await asyncio.wait_for(self._child.ended(), DEADLINE_S)

    async def kill(self) -> None:
        assert self._child is not None
        self._child.kill()
        await self._child.ended()

    async def restart(self) -> None:
        """Killed, and started again."""
        await self.kill()
        await self.start()

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def mapped(self) -> int:
        """How many regions it has mapped: its own, and one of each worker."""
        return Path(f"/proc/{self.pid}/maps").read_text().count("antiphon-kv")

    def resident_bytes(self) -> int:
        """Memory of its own; what it shares with workers does not count."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        [line] = [line for line in lines if line.startswith("RssAnon")]
        return int(line.split()[1]) * 1024


@asynccontextmanager
async def real_store(
    folder: Path, *, cluster: dict[str, object] | None = None, **store: object
) -> AsyncIterator[RealStore]:
    """A store with this `[store]` table, ready; killed at the end."""
    running = RealStore(folder, {"memory_bytes": "1MiB", **store}, cluster or {})
    await running.start()
    try:
        yield running
    finally:
        await running.kill()
        print("\n".join(running.log))  # noqa: T201 - shown where a test fails


@asynccontextmanager
async def stopped(store: RealStore) -> AsyncIterator[None]:
    """The process stands still meanwhile."""
    store.signal(signal.SIGSTOP)
    await until(
        lambda: Path(f"/proc/{store.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    )
    try:
        yield
    finally:
        store.signal(signal.SIGCONT)


# ── on this loop ─────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def served(
    folder: Path,
    *,
    values: RemoteValues | None = None,
    pool: dict[str, object] | None = None,
    network: dict[str, object] | None = None,
    **store: Any,
) -> AsyncIterator[Path]:
    """The socket of a store that runs on this loop, which is quicker than a process; what breaks
    it is raised at the end. `values`: its remote tier is this."""
    tables = {"store": {"memory_bytes": "1MiB", **store}, "cluster": CLUSTER}
    config = build({**tables, "store_pool": pool or {}, "network": network or {}})
    path, stop, ready = folder / STORE_SOCKET, asyncio.Event(), asyncio.Event()
    slower = slower_tiers(config)
    slower = replace(slower, remote=values) if values is not None else slower
    serving = asyncio.create_task(serve_store(config, path, slower, stop, on_ready=ready.set))
    await asyncio.wait_for(ready.wait(), DEADLINE_S)
    try:
        yield path
    finally:
        stop.set()
        await asyncio.wait_for(serving, DEADLINE_S)


@asynccontextmanager
async def in_use(folder: Path, **store: Any) -> AsyncIterator[tuple[FakeWorker, FakeGateway]]:
    """A store on this loop, with a worker and a gateway; a gateway asks for operators."""
    async with (
        served(folder, **store) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        yield worker, gateway


def on_disk(folder: Path) -> dict[str, Any]:
    """The part of a `[store]` table that gives it a disk tier, in `kv` below the folder."""
    return {"disk_bytes": "8MiB", "dir": str(folder / "kv")}


class RemoteDict:
    """A remote system in this process. While it is `silent`, every call fails."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.silent = False

    def exists(self, names: Sequence[bytes]) -> Sequence[bool]:
        return [name in self._kept() for name in names]

    def get(self, names: Sequence[bytes], most_bytes: int) -> Sequence[bytes | None]:
        values = [self._kept().get(name) for name in names]
        return [value and value[:most_bytes] for value in values]

    def put(self, values: Sequence[tuple[bytes, bytes]]) -> Sequence[bool]:
        self._kept().update(values)
        return [True] * len(values)

    def remove(self, names: Sequence[bytes]) -> None:
        for name in names:
            self._kept().pop(name, None)

    def names(self, beginning: bytes, place: int) -> tuple[int, Sequence[bytes]]:
        """As a hash table is walked through: what goes meanwhile moves nothing else."""
        here = [name for name in self._kept() if name[-1] // 64 == place]
        return (place + 1) % 4, [name for name in here if name.startswith(beginning)]

    def reset(self) -> None:
        pass

    def _kept(self) -> dict[bytes, bytes]:
        if self.silent:
            raise ConnectionError("silent")
        return self.kept


class Gate:
    """Something on a thread stands still at it while it is closed."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._reached = threading.Event()

    def pass_through(self) -> None:
        self._reached.set()
        assert self._open.wait(60)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def open(self) -> None:
        self._open.set()


def gated(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> Gate:
    """Each call of the method waits at the gate first."""
    gate, original = Gate(), getattr(owner, method)

    def waiting(*arguments: Any, **named: Any) -> Any:
        gate.pass_through()
        return original(*arguments, **named)

    monkeypatch.setattr(owner, method, waiting)
    return gate
