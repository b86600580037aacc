"""An owner with one memory and a few leases, and takers of them."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from link_kit import KV, worker_info

from antiphon.live.peer_client import PeerClient
from antiphon.live.peer_port import PeerPort
from antiphon.types import (
    Incarnation,
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    PeerHello,
    WorkerId,
    WorkerInfo,
)


class Leases:
    """Implements `TakenLeases`: each lease is granted to one (taker, attempt)."""

    def __init__(self) -> None:
        self.granted: dict[LeaseId, tuple[Incarnation, int]] = {}
        self.taken: list[LeaseId] = []
        self.renewed: list[LeaseId] = []

    def take(self, lease: LeaseId, taker: Incarnation, attempt: int) -> LeaseHeld | LeaseRefused:
        self.taken.append(lease)
        return self._answer(lease, taker, attempt)

    def renew_taken(
        self, leases: Sequence[LeaseId], taker: Incarnation
    ) -> Sequence[LeaseHeld | LeaseRefused]:
        self.renewed += leases
        return [self._answer(lease, taker, self.granted.get(lease, ("", 0))[1]) for lease in leases]

    def acknowledge(
        self, lease: LeaseId, taker: Incarnation, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        answer = self._answer(lease, taker, attempt)
        if isinstance(answer, LeaseHeld):
            del self.granted[lease]
        return answer

    def _answer(self, lease: LeaseId, taker: Incarnation, attempt: int) -> LeaseHeld | LeaseRefused:
        if lease not in self.granted:
            return LeaseRefused(lease, LeaseRefusal.GONE)
        if self.granted[lease] != (taker, attempt):
            return LeaseRefused(lease, LeaseRefusal.FOREIGN)
        return LeaseHeld(lease)


class Owner:
    """Use as `async with Owner(folder) as owner`."""

    def __init__(self, folder: Path, name: str = "p0", life: str = "owner-1") -> None:
        self.info: WorkerInfo = worker_info(name, life)
        self.path = folder / f"{name}.data.sock"
        self.leases = Leases()
        self.memory = os.memfd_create("test")
        os.write(self.memory, f"memory of {name}".encode())
        self.port = PeerPort(
            self.path,
            owner=lambda: self.info,
            descriptor=self.memory,
            leases=self.leases,
            clock=time.monotonic,
        )

    async def __aenter__(self) -> "Owner":
        await self.port.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.port.close()
        os.close(self.memory)


class Taker:
    """A client of one life of an owner, and the memories that it got."""

    def __init__(
        self,
        path: Path,
        *,
        name: str = "d0",
        owner: str = "p0",
        owner_life: str = "owner-1",
        kv: KvShape = KV,
        timeout_s: float = 10.0,
    ) -> None:
        self.incarnation = Incarnation(f"{name}-1")
        self.memories: list[bytes] = []
        hello = PeerHello(
            taker=WorkerId(name),
            incarnation=self.incarnation,
            owner=WorkerId(owner),
            owner_incarnation=Incarnation(owner_life),
            kv=kv,
            descriptor=True,
        )
        self.client = PeerClient(
            path, hello, on_memory=self._got, clock=time.monotonic, timeout_s=timeout_s
        )

    def _got(self, descriptor: int, kv: KvShape) -> None:
        try:
            self.memories.append(os.pread(descriptor, 100, 0))
        finally:
            os.close(descriptor)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
