"""A worker's KV memory among those that NIXL reads: its own for others, theirs for it.

    memory = NixlMemory(region)           memory.access ──► takers, over their control streams
    path = memory.path_to(access)         misses = path.pull(pages, timeout_s=2.0)
    memory.leave(path)

There is no key to it and no cipher: whoever reaches the agent can read and write the memory of its
process (docs/decisions/0029-kv-by-nixl.md).
"""

import threading
from typing import Any

from antiphon.core.data_access import MOST_METADATA_BYTES
from antiphon.errors import PeerError, UsageError
from antiphon.store.transfer import OwnedRegion
from antiphon.types import RemoteMemory

from .nixl_agent import Agent, give_back, new_agent, not_here, registered
from .nixl_path import NixlPath

MOST_BROKEN = 8
"""Paths that broke keep their staging; after so many a process begins no new ones."""


class NixlMemory:
    """Offers `region` from the beginning, and reads from others into it. Any thread may call."""

    def __init__(self, region: OwnedRegion, agent: Agent | None = None) -> None:
        """`agent`: a new one, if there is none. May take seconds: a network device pins the memory.

        Raises `UsageError` if NIXL is not installed, or does not take the memory.
        """
        self._region = region
        self._agent = new_agent() if agent is None else agent
        self._lock = threading.Lock()
        self._users: dict[RemoteMemory, int] = {}
        self._paths: dict[RemoteMemory, NixlPath] = {}
        self._registered: list[Any] = []
        try:
            for memory in (region.generations, region.content):
                self._registered.append(registered(self._agent, memory))
            metadata = self._agent.get_agent_metadata()
        except Exception as error:  # the library raises nothing narrower
            self.close()
            raise not_here(error) from error
        if len(metadata) > MOST_METADATA_BYTES:
            self.close()
            raise UsageError(
                f"NIXL needs {len(metadata)} bytes to say how this worker is reached, at most "
                f"{MOST_METADATA_BYTES} may be: name fewer devices in UCX_NET_DEVICES"
            )
        self.access = RemoteMemory(
            metadata=metadata,
            generations_at=region.generations.ctypes.data,
            pages_at=region.content.ctypes.data,
            pages=region.shape.pages,
        )

    def path_to(self, access: RemoteMemory) -> NixlPath:
        """The path to a peer's pages, shared by all that ask for the same, until each leaves it.

        Blocks. Raises `PeerError`: NIXL can't reach it, or a path to it broke before.
        """
        with self._lock:
            path = self._paths.get(access)
            if path is None:
                broken = sum(bool(one.problem) for one in self._paths.values())
                if broken >= MOST_BROKEN:
                    raise PeerError(f"NIXL failed {broken} times in this process: no more of it")
                path = NixlPath(self._agent, self._region, access)
                self._paths[access] = path
            if path.problem:
                raise PeerError(path.problem)
            self._users[access] = self._users.get(access, 0) + 1
            return path

    def leave(self, path: NixlPath) -> None:
        """Whoever got it has done with it. The last one waits for pulls that are under way, and
        closes it; one whose staging may still be written to stays known as broken."""
        with self._lock:
            self._users[path.access] -= 1
            if not self._users[path.access]:
                del self._users[path.access]
                if path.close():
                    del self._paths[path.access]

    def close(self) -> None:
        """The region is offered no longer."""
        give_back(self._agent, self._registered)
