"""Blocks that a step has completed, on their way to the store.

    pool ── BlockStored ──► `heard` ──┐ complete
                                      └──► `send`: seal, Put ──► store

`send` comes in the same turn of the event loop as the step's end, so that nobody has been given the
pages meanwhile. From then on nothing is kept for the store: if a page is reassigned before it was
copied there, its generation says so. What can't be sent is dropped and counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import groupby

from antiphon.errors import PeerError
from antiphon.types import BlockKey, BlockStored, Forget, KvEvent, Put, PutBlock

from .pull_path import SealedPages
from .store_session import StoreSession

MAX_UNSENT_BYTES = 256 * 2**10
"""Of a stream whose reader does not keep up: some 500 blocks."""
MAX_DOUBTFUL = 2**16
"""Keys that are kept for a store that is away."""
_PAGES_A_MESSAGE = 2**16
"""Some 5 MB."""


class Drop(StrEnum):
    """Why a block was not offered to the store."""

    ABSENT = "absent"
    """There is no store now."""
    BEHIND = "behind"
    """The store does not read what was sent before."""


class WriteBack:
    """`heard` is the page pool's listener. `put_blocks` and `dropped` only grow. `on_late` gets the
    keys of blocks that a store that is there was not told of.
    """

    def __init__(self, pages: SealedPages, session: Callable[[], StoreSession | None]) -> None:
        self.put_blocks = 0
        self.dropped: Counter[Drop] = Counter()
        self.on_late: Callable[[Sequence[BlockKey]], None] = lambda keys: None
        self._pages = pages
        self._session = session
        self._complete: dict[BlockKey, BlockStored] = {}
        self._doubtful: dict[BlockKey, None] = {}

    @property
    def takes(self) -> bool:
        """Whether there is a store now."""
        return self._session() is not None

    @property
    def at_leisure(self) -> bool:
        """Whether the store has read all that was sent."""
        session = self._session()
        return session is not None and not session.unsent_bytes

    def heard(self, event: KvEvent) -> None:
        """A block was completed, or is gone."""
        if isinstance(event, BlockStored):
            self._complete[event.key] = event
            self._doubtful.pop(event.key, None)
            return
        self._complete.pop(event.key, None)
        if event.doubtful:
            self._doubtful[event.key] = None

    def forget(self, keys: Iterable[BlockKey] | None = None) -> None:
        """What was completed since the last call, or of it these, came from elsewhere: there it is
        put."""
        if keys is None:
            self._complete.clear()
            return
        for key in keys:
            self._complete.pop(key, None)

    def send(self) -> None:
        """Offer what was completed since the last call, and have forgotten what is in doubt.

        Takes some 50 µs a block, never waits.
        """
        if self._doubtful:
            self._have_forgotten()
        if self._complete:
            blocks = tuple(self._complete.values())
            self._complete.clear()
            self.offer(blocks)

    def offer(self, blocks: Sequence[BlockStored]) -> None:
        """Seal and put these, which must be named at this moment. Never waits."""
        for tenant, some in groupby(sorted(blocks, key=_tenant), key=_tenant):
            own = list(some)
            most = max(1, _PAGES_A_MESSAGE // max(1, len(own[0].pages)))
            for start in range(0, len(own), most):
                self._put(tenant, own[start : start + most])

    def _put(self, tenant: bytes, blocks: Sequence[BlockStored]) -> None:
        session = self._session()
        if session is None:
            self.dropped[Drop.ABSENT] += len(blocks)
        elif session.unsent_bytes > MAX_UNSENT_BYTES:
            self.dropped[Drop.BEHIND] += len(blocks)
            self.on_late([block.key for block in blocks])
        else:
            put = Put(tenant=tenant, blocks=self._sealed(blocks))
            try:
                session.put(put)
            except PeerError:
                self.dropped[Drop.ABSENT] += len(blocks)
            else:
                self.put_blocks += len(blocks)

    def _have_forgotten(self) -> None:
        """A store that is away hears of it when it is back: it may have them on disk."""
        session = self._session()
        if session is None:
            while len(self._doubtful) > MAX_DOUBTFUL:
                del self._doubtful[next(iter(self._doubtful))]
            return
        try:
            session.forget(Forget(tuple(self._doubtful)))
        except PeerError:
            return
        self._doubtful.clear()

    def _sealed(self, blocks: Sequence[BlockStored]) -> tuple[PutBlock, ...]:
        sealed = iter(self._pages.seal([page for block in blocks for page in block.pages]))
        return tuple(
            PutBlock(
                key=block.key,
                parent=block.parent,
                pages=tuple(next(sealed) for _ in block.pages),
            )
            for block in blocks
        )


def _tenant(block: BlockStored) -> bytes:
    return block.tenant
