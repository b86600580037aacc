"""Pages of one owner on another host, read through NIXL: by RDMA, where there is any.

    own pages ◄── copied and checked ── staging ◄── READ (one-sided) ── the owner's memory

The owner does nothing during a read, so all of the seqlock is the taker's: it reads the pages, and
then their generations. These only grow, and were what was offered before the read began; so what
they still are afterwards they were in between. The checksum is compared while a page is copied.

A read that has begun can't be called off: NIXL, or the device, may write until it is done. It
writes into memory of its own, the staging, and never into KV. When a read fails, or is not done
after `PATIENCE_S`, the path is broken for good, and its staging is left to it.
"""

import mmap
import threading
import time
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from antiphon.errors import BugError, PeerError
from antiphon.store.transfer import Miss, OwnedRegion
from antiphon.store.transfer.mapping import MISS_OF, pull_table
from antiphon.store.transfer.page_copy import GOOD, NO_TARGET, ROW_WORDS, Places, copy_pages
from antiphon.types import PagePull, RemoteMemory, Seconds

from .nixl_agent import DONE, UNDER_WAY, Agent, give_back, pieces, registered

STAGED_BYTES = 32 * 2**20
"""Read at once, from one owner."""
PATIENCE_S: Seconds = 2.0
"""For one read."""
_WORD = 8
_POLL_S: Seconds = 20e-6
"""NIXL tells nobody when a read is done."""


class NixlPath:
    """Reads what `access` names into pages of `own`. One pull at a time; others wait.

    `problem`: why nothing is read here any more; empty: it is fine.
    """

    def __init__(self, agent: Agent, own: OwnedRegion, access: RemoteMemory) -> None:
        """Raises `PeerError` if NIXL can't make anything of `access`, or has no memory for it."""
        self.access = access
        self.problem = ""
        self._agent = agent
        self._own = own
        self._lock = threading.Lock()
        self._slots = max(1, STAGED_BYTES // own.shape.page_bytes)
        self._begun: Any = None
        """A read that is under way, or ended otherwise than by being done."""
        self._registered: list[Any] = []
        try:
            staging = mmap.mmap(-1, self._slots * own.shape.page_bytes)
            self._staging = np.frombuffer(staging, np.uint8)
            self._words = np.zeros(self._slots, np.uint64)
            for memory in (self._staging, self._words):
                self._registered.append(registered(agent, memory))
            self._peer = agent.add_remote_agent(access.metadata)
        except Exception as error:  # the library raises nothing narrower
            give_back(agent, self._registered)
            raise PeerError(f"NIXL can't reach a peer's memory: {error!r:.200}") from error
        self._places = Places(
            generations_at=self._words.ctypes.data,
            pages_at=self._staging.ctypes.data,
            pages=self._slots,
            own_generations_at=own.generations.ctypes.data,
            own_pages_at=own.content.ctypes.data,
            own_pages=own.shape.pages,
            page_bytes=own.shape.page_bytes,
        )
        copy_pages(self._places, array("Q"))  # compiled before a request waits for it

    def pull(self, pages: Sequence[PagePull], timeout_s: Seconds) -> tuple[Miss | None, ...]:
        """Copy `pages` into pages of our own; for each, why it is not what was offered, or None.

        Blocks; polls, as NIXL does. Targets are ours to write and become odd. Waits `timeout_s` for
        its turn, and begins no read when as much has passed again: pages that are left then are
        UNREACHED. When it returns or raises, nothing is written to targets any more. Raises
        `PeerError` if a read breaks the path: what came is lost. Raises `BugError` for a target
        that does not exist.
        """
        table = pull_table(pages)
        if not self._own.back_each(table[:, ROW_WORDS - 1].astype(np.int64)):
            return (Miss.NO_MEMORY,) * len(table)
        misses: list[Miss | None] = []
        if self._lock.acquire(timeout=timeout_s):
            try:
                deadline = time.monotonic() + timeout_s
                while len(misses) < len(table) and time.monotonic() < deadline:
                    if self.problem:
                        raise PeerError(self.problem)
                    misses += self._staged(table[len(misses) : len(misses) + self._slots])
            finally:
                self._lock.release()
        return (*misses, *[Miss.UNREACHED] * (len(table) - len(misses)))

    def close(self) -> bool:
        """Give all back. False: a read may still write, so that nothing is, until the process
        ends. Waits for a pull that is under way."""
        with self._lock:
            self.problem = self.problem or "the path to a peer's memory is closed"
            if self._begun is not None:
                return False
            give_back(self._agent, self._registered, self._peer)
            return True

    # ── under the lock ───────────────────────────────────────────────────────────────────────

    def _staged(self, table: npt.NDArray[np.uint64]) -> list[Miss | None]:
        """As many pages as there is room for."""
        places, access = self._places, self.access
        there = table[:, 0] < access.pages
        if there.any():
            slots, sources = np.flatnonzero(there).tolist(), table[there, 0].tolist()
            for at, their, size in (
                (places.pages_at, access.pages_at, places.page_bytes),
                (places.generations_at, access.generations_at, _WORD),
            ):
                self._read((at, slots), (their, sources), size)
        rows = table.copy()
        rows[:, 0] = np.where(there, np.arange(len(table)), self._slots)  # the last: no such page
        verdicts = array("Q", rows.tobytes())
        copy_pages(places, verdicts)
        return [_miss(verdict) for verdict in verdicts[::ROW_WORDS]]

    def _read(self, to: tuple[int, list[int]], at: tuple[int, list[int]], size: int) -> None:
        """Rows of `size` bytes, from the owner's to ours; each is an address, and which of the
        rows that begin there. Raises `PeerError`: the path is broken."""
        late = time.monotonic() + PATIENCE_S
        agent = self._agent
        try:
            here, there = pieces(agent, *to, size), pieces(agent, *at, size)
            handle = agent.initialize_xfer("READ", here, there, self._peer)
            self._begun = handle
            state = agent.transfer(handle)
            while state == UNDER_WAY and time.monotonic() < late:
                time.sleep(_POLL_S)
                state = agent.check_xfer_state(handle)
            if state == DONE:
                self._begun = None
                agent.release_xfer_handle(handle)
        except Exception as error:  # the library raises nothing narrower
            raise self._broken(f"{error!r:.200}") from error
        if state == UNDER_WAY:
            raise self._broken("a read was not done in time")
        if state != DONE:
            raise self._broken(f"a read ended as {state!r:.20}")

    def _broken(self, why: str) -> PeerError:
        self.problem = f"NIXL does not bring a peer's pages: {why}"
        return PeerError(self.problem)


def _miss(verdict: int) -> Miss | None:
    if verdict == NO_TARGET:
        raise BugError("a target of a pull does not exist")
    return None if verdict == GOOD else MISS_OF[verdict]
