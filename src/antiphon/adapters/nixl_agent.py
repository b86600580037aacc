"""What is used of a NIXL agent (github.com/ai-dynamo/nixl): one in a process, for all its reads.

The package is loaded by `library`, which refuses by name to go on without it.
"""

import ctypes
import importlib
import importlib.util
import logging
import secrets
from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from antiphon.errors import UsageError

HOST_MEMORY = "DRAM"
DONE, UNDER_WAY = "DONE", "PROC"
_DEVICE = 0
_log = logging.getLogger(__name__)
_REMEDY = 'or set network.kv_transport = "tcp"'


class Agent(Protocol):
    """`nixl._api.nixl_agent`. Every call may raise, and what it raises has no common class. Calls
    may come from several threads."""

    def register_memory(self, reg_list: Any, mem_type: str) -> Any:
        """Have this memory, [(address, bytes, device, "")], read into or out of."""
        ...

    def deregister_memory(self, dereg_list: Any) -> None:
        """No longer."""
        ...

    def get_agent_metadata(self) -> bytes:
        """What another agent must know of this one and of what is registered by now."""
        ...

    def add_remote_agent(self, metadata: bytes) -> str:
        """Know another agent; its name."""
        ...

    def remove_remote_agent(self, agent: str) -> None:
        """Forget it."""
        ...

    def get_xfer_descs(self, descs: Sequence[tuple[int, int, int]], mem_type: str) -> Any:
        """Pieces of memory, (address, bytes, device)."""
        ...

    def initialize_xfer(
        self, operation: str, local_descs: Any, remote_descs: Any, remote_agent: str
    ) -> Any:
        """A transfer between pieces here and there, not begun yet."""
        ...

    def transfer(self, handle: Any) -> str:
        """Begin it; its state."""
        ...

    def check_xfer_state(self, handle: Any) -> str:
        """Its state: DONE, PROC (under way) or ERR."""
        ...

    def release_xfer_handle(self, handle: Any) -> None:
        """Forget it."""
        ...


def is_installed() -> bool:
    """Whether this Python has the package. Loads nothing."""
    return importlib.util.find_spec("nixl") is not None


def library() -> Any:
    """NIXL's module. Raises `UsageError` if it can't be loaded; takes seconds the first time."""
    try:
        return importlib.import_module("nixl._api")
    except ImportError as error:
        raise UsageError(
            f'network.kv_transport = "nixl": NIXL can\'t be loaded here ({error!s:.200}): '
            f"pip install 'antiphon[nixl]', {_REMEDY}"
        ) from None


def new_agent() -> Agent:
    """An agent over UCX, with a name that no other has. Raises `UsageError`: there can't be one."""
    api = library()
    try:
        strict = api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT  # by default none
        config = api.nixl_agent_config(backends=["UCX"], sync_mode=strict)
        agent = api.nixl_agent(f"antiphon-{secrets.token_hex(8)}", config)
    except Exception as error:  # the library raises nothing narrower
        raise not_here(error) from error
    _end_without_destructors()
    return agent


def _end_without_destructors() -> None:
    """When this process ends, keep its exit code: the destructor of a library in NIXL's wheel
    (libnl-route, loaded by UCX) ends it with SIGSEGV, after Python itself has ended."""
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)


def not_here(error: Exception) -> UsageError:
    """NIXL is installed, and will not do here."""
    return UsageError(
        f'network.kv_transport = "nixl": NIXL does not work here: {error!r:.200}: see its own '
        f"messages above, and the limit of locked memory (ulimit -l), {_REMEDY}"
    )


def registered(agent: Agent, memory: npt.NDArray[Any]) -> Any:
    """Have `memory` registered; what `give_back` takes. Raises what the library does."""
    return agent.register_memory([(memory.ctypes.data, memory.nbytes, _DEVICE, "")], HOST_MEMORY)


def give_back(agent: Agent, registrations: list[Any], peer: str | None = None) -> None:
    """Deregister all of them, empty the list, and forget `peer`. A failure is a warning."""
    try:
        while registrations:
            agent.deregister_memory(registrations.pop())
        if peer is not None:
            agent.remove_remote_agent(peer)
    except Exception as error:  # noqa: BLE001  the library raises nothing narrower
        _log.warning("NIXL gives memory back badly: %r", error)


def pieces(agent: Agent, start: int, rows: Sequence[int], size: int) -> Any:
    """Those rows, of `size` bytes each, of an array that begins at `start`."""
    return agent.get_xfer_descs([(start + row * size, size, _DEVICE) for row in rows], HOST_MEMORY)
