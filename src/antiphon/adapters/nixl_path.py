"""Pages of another worker's region through NIXL (github.com/ai-dynamo/nixl): by RDMA, say.

    owner = NixlOwner("prefill-0", region)                   access = owner.access
    path = NixlPath("decode-0", own, access)                 good = path.pull(pages, timeout_s=2.0)

The owner does nothing during a read, so the taker does all of the seqlock: it reads the pages'
generations, the pages, and their generations again, one-sided, then compares checksums. The package
is loaded when one of these is made; without it they are refused by name.
"""

import importlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from antiphon.errors import BugError, PeerError, UsageError
from antiphon.store.transfer import Miss, OwnedRegion
from antiphon.store.transfer.mapping import MISS_OF, pull_table
from antiphon.store.transfer.page_copy import GOOD, IMPOSSIBLE, OVERTAKEN, STALE
from antiphon.store.transfer.tcp.slice_kernels import prove_rows
from antiphon.types import PagePull, Seconds

_WORD = 8
_HOST_MEMORY = "DRAM"
_HERE = "NIXL_INIT_AGENT"
_DEVICE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NixlAccess:
    """What a taker must know of an owner's region. Secret: it opens the memory."""

    metadata: bytes
    generations_at: int
    pages_at: int
    pages: int
    page_bytes: int
    layout: str


class NixlOwner:
    """Registers `region`, from `__init__` to `close`."""

    def __init__(self, name: str, region: OwnedRegion) -> None:
        """Raises `UsageError` if NIXL is not installed, or does not take the memory."""
        self._agent = _agent(name)
        self._region = region
        self._registered = _registered(self._agent, region.generations, region.content)
        self.access = NixlAccess(
            metadata=self._agent.get_agent_metadata(),
            generations_at=region.generations.ctypes.data,
            pages_at=region.content.ctypes.data,
            pages=region.shape.pages,
            page_bytes=region.shape.page_bytes,
            layout=region.shape.layout,
        )

    def close(self) -> None:
        """Take the memory back: it can't be read any more."""
        _deregister(self._agent, self._registered)


class NixlPath:
    """Reads what `access` names into pages of `own`. For one thread at a time.

    `missed` counts the pages that were not read by reason, `pulled` those that were.
    """

    def __init__(self, name: str, own: OwnedRegion, access: NixlAccess) -> None:
        """Raises `UsageError` if NIXL is not installed, `PeerError`: other pages than ours."""
        theirs, ours = (access.page_bytes, access.layout), (own.shape.page_bytes, own.shape.layout)
        if theirs != ours:
            raise PeerError(f"a peer's KV can't be read here: its pages are {theirs}, ours {ours}")
        self.missed: Counter[Miss] = Counter()
        self.pulled = 0
        self._agent = _agent(name)
        self._own = own
        self._peer_pages = access.pages
        self._words = np.zeros(access.pages, np.uint64)
        self._registered = _registered(self._agent, self._words, own.content)
        self._peer: str | None = None
        try:
            self._peer = peer = self._agent.add_remote_agent(access.metadata)
            size = access.page_bytes
            self._words_here = self._listed(_HERE, self._words.ctypes.data, access.pages, _WORD)
            self._words_there = self._listed(peer, access.generations_at, access.pages, _WORD)
            self._pages_here = self._listed(_HERE, own.content.ctypes.data, own.shape.pages, size)
            self._pages_there = self._listed(peer, access.pages_at, access.pages, size)
        except BaseException:
            self.close()
            raise

    def pull(self, pages: Sequence[PagePull], timeout_s: Seconds) -> tuple[bool, ...]:
        """Like `PageClient.pull`, all pages at once. Blocks; polls, as NIXL does."""
        table = pull_table(pages)
        verdicts = np.full(len(table), GOOD, np.uint8)
        targets = table[:, 3].astype(np.int64)
        if len(table) and int(table[:, 3].max()) >= self._own.shape.pages:
            raise BugError(f"target {int(table[:, 3].max())} of a pull does not exist")
        if not self._own.back_each(targets):
            return self._counted(verdicts, np.ones(len(table), np.bool_), Miss.NO_MEMORY)
        self._own.begin_write(targets)
        odd = (table[:, 1] & np.uint64(1)).astype(np.bool_) | (table[:, 1] == 0)
        verdicts[odd | (table[:, 0] >= self._peer_pages)] = IMPOSSIBLE
        late = not self._read(table, verdicts, time.monotonic() + timeout_s)
        columns = (np.ascontiguousarray(table[:, column]) for column in (3, 2))
        if not late:
            prove_rows(
                self._own.content.ctypes.data, self._own.shape.page_bytes, *columns, verdicts
            )
        return self._counted(verdicts, np.full(len(table), late), Miss.UNREACHED)

    def close(self) -> None:
        """Give the memory back, and forget the peer."""
        _deregister(self._agent, self._registered)
        if self._peer is not None:
            self._agent.remove_remote_agent(self._peer)
            self._peer = None

    def _read(
        self, table: npt.NDArray[np.uint64], verdicts: npt.NDArray[np.uint8], deadline: Seconds
    ) -> bool:
        """Generations, pages, generations. False: not in time."""
        if not self._compare(table, verdicts, STALE, deadline):
            return False
        rows = verdicts == GOOD
        sources, targets = table[rows, 0].tolist(), table[rows, 3].tolist()
        if not self._moved((self._pages_here, targets), (self._pages_there, sources), deadline):
            return False
        return self._compare(table, verdicts, OVERTAKEN, deadline)

    def _compare(
        self,
        table: npt.NDArray[np.uint64],
        verdicts: npt.NDArray[np.uint8],
        otherwise: int,
        deadline: Seconds,
    ) -> bool:
        """Read the generations of pages that are good so far; those with another one are not."""
        rows = np.flatnonzero(verdicts == GOOD)
        sources = table[rows, 0].astype(np.int64)
        words = np.unique(sources).tolist()
        if not self._moved((self._words_here, words), (self._words_there, words), deadline):
            return False
        verdicts[rows[self._words[sources] != table[rows, 1]]] = otherwise
        return True

    def _moved(
        self, here: tuple[Any, list[int]], there: tuple[Any, list[int]], deadline: Seconds
    ) -> bool:
        """Read these entries of a list into those of another. False: not in time, or at all."""
        if not here[1]:
            return True
        handle = self._agent.make_prepped_xfer("READ", *here, *there)
        try:
            state = self._agent.transfer(handle)
            while state == "PROC" and time.monotonic() < deadline:
                state = self._agent.check_xfer_state(handle)
        finally:
            self._agent.release_xfer_handle(handle)
        return state == "DONE"

    def _counted(
        self, verdicts: npt.NDArray[np.uint8], lost: npt.NDArray[np.bool_], why: Miss
    ) -> tuple[bool, ...]:
        good = (verdicts == GOOD) & ~lost
        missed = Counter({why: int((lost & (verdicts == GOOD)).sum())})
        for verdict, miss in MISS_OF.items():
            missed[miss] += int((verdicts == verdict).sum())
        self.missed.update(+missed)
        self.pulled += int(good.sum())
        return tuple(good.tolist())

    def _listed(self, agent: str, start: int, count: int, size: int) -> Any:
        rows = [(start + index * size, size, _DEVICE) for index in range(count)]
        return self._agent.prep_xfer_dlist(agent, self._agent.get_xfer_descs(rows, _HOST_MEMORY))


def _agent(name: str) -> Any:
    try:
        api = importlib.import_module("nixl._api")
    except ImportError:
        raise UsageError(
            "NIXL is not installed here, which KV over RDMA needs: pip install 'antiphon[nixl]'"
        ) from None
    return api.nixl_agent(name, api.nixl_agent_config(backends=["UCX"]))


def _registered(agent: Any, *memories: npt.NDArray) -> list[Any]:
    """All of them, or none."""
    handles: list[Any] = []
    try:
        for memory in memories:
            rows = [(memory.ctypes.data, memory.nbytes, _DEVICE, "")]
            handles.append(agent.register_memory(rows, _HOST_MEMORY))
    except BaseException:
        _deregister(agent, handles)
        raise
    return handles


def _deregister(agent: Any, handles: list[Any]) -> None:
    while handles:
        agent.deregister_memory(handles.pop())
