"""NIXL agents of one process, without NIXL: they read each other's memory where it lies."""

import ctypes
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

Piece = tuple[int, int, int]


@dataclass
class Wire:
    """What connects agents, and what is wrong with it. `late`: a read that is begun is not done
    until `arrive`; `state`: what reads end as instead."""

    agents: dict[str, "WiredAgent"] = field(default_factory=dict)
    late: bool = False
    state: str = "DONE"
    waiting: list[tuple[list[Piece], list[Piece]]] = field(default_factory=list)
    names: Any = field(default_factory=itertools.count)

    def agent(self) -> "WiredAgent":
        """One more."""
        agent = WiredAgent(f"agent-{next(self.names)}", self)
        self.agents[agent.name] = agent
        return agent

    def arrive(self) -> None:
        """What was late is written now."""
        while self.waiting:
            _move(*self.waiting.pop())


class WiredAgent:
    """Implements `nixl_agent.Agent`. `peers` are those it knows now, `registered` what it has."""

    def __init__(self, name: str, wire: Wire) -> None:
        self.name = name
        self.wire = wire
        self.registered: list[Piece] = []
        self.peers: list[str] = []
        self.open_handles = 0

    def register_memory(self, reg_list: Any, mem_type: str) -> Any:
        pieces = [(at, size, device) for at, size, device, _ in reg_list]
        self.registered += pieces
        return pieces

    def deregister_memory(self, dereg_list: Any) -> None:
        for piece in dereg_list:
            self.registered.remove(piece)

    def get_agent_metadata(self) -> bytes:
        return json.dumps({"name": self.name, "memory": self.registered}).encode()

    def add_remote_agent(self, metadata: bytes) -> str:
        name = json.loads(metadata)["name"]
        self.peers.append(self.wire.agents[name].name)
        return name

    def remove_remote_agent(self, agent: str) -> None:
        self.peers.remove(agent)

    def get_xfer_descs(self, descs: Any, mem_type: str) -> Any:
        return list(descs)

    def initialize_xfer(
        self, operation: str, local_descs: Any, remote_descs: Any, remote_agent: str
    ) -> Any:
        assert operation == "READ"
        assert remote_agent in self.peers
        for agent, pieces in ((self, local_descs), (self.wire.agents[remote_agent], remote_descs)):
            assert all(agent.has(piece) for piece in pieces), "memory that is not registered"
        self.open_handles += 1
        return local_descs, remote_descs

    def has(self, piece: Piece) -> bool:
        at, size, _ = piece
        return any(start <= at and at + size <= start + n for start, n, _ in self.registered)

    def transfer(self, handle: Any) -> str:
        if self.wire.late:
            self.wire.waiting.append(handle)
            return "PROC"
        if self.wire.state == "DONE":
            _move(*handle)
        return self.wire.state

    def check_xfer_state(self, handle: Any) -> str:
        return "PROC" if handle in self.wire.waiting else "DONE"

    def release_xfer_handle(self, handle: Any) -> None:
        self.open_handles -= 1


def _move(here: list[Piece], there: list[Piece]) -> None:
    for (to, size, _), (at, _, _) in zip(here, there, strict=True):
        ctypes.memmove(to, at, size)
