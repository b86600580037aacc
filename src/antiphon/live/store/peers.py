"""The other stores of a pool, as the tiers of one store see them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from antiphon.core.store_pool import RAW, Chosen, FetchTerms
from antiphon.core.tiers import Slot
from antiphon.store.record import RecordedBlock
from antiphon.types import BlockKey, KvChange, OfferedPage, PoolPeer, Seconds, TierStats

if TYPE_CHECKING:
    from .tiered_blocks import TieredBlocks


@dataclass(frozen=True, slots=True)
class Filled:
    """A block that came, sealed in its slot. `lineage`: empty if it is to the bit what was put."""

    pages: tuple[OfferedPage, ...]
    lineage: bytes = b""


class Reading(Protocol):
    """One caller's way through blocks that peers have: how to read them, chunk by chunk.

    `looks_ahead`: the choice depends on all that is left, else on the next few alone.
    """

    looks_ahead: bool

    def choose(self, keys: Sequence[BlockKey], on_way: int = 0) -> Chosen:
        """How to read the next of these (at least one), behind so many blocks that are on their way
        from peers already: see `LevelBook.choose`. Mutates."""
        ...

    def keeps_up(self, key: BlockKey) -> bool:
        """Whether who has this block sends so fast that a turn may be on its way while the one
        before it is: else they would only delay each other."""
        ...

    def left(self, blocks: int) -> None:
        """So many were left, to be computed."""
        ...


class Peers(Protocol):
    """What the tiers ask and tell. Never waits but where it says so."""

    @property
    def possible(self) -> bool:
        """Whether there may be any."""
        ...

    @property
    def keys(self) -> Collection[BlockKey]:
        """All blocks that some peer has, as it was said. Valid until the next call of anything."""
        ...

    def __contains__(self, key: BlockKey) -> bool:
        """Whether the block can probably be had from a peer."""
        ...

    def first_to_go(self, idle: Callable[[BlockKey], bool], now: Seconds) -> BlockKey | None:
        """See `core.store_pool.Replicas`."""
        ...

    def is_home(self, key: BlockKey) -> bool:
        """Whether the block lives here while it is cold."""
        ...

    def views(self) -> tuple[PoolPeer, ...]:
        """The other stores, by name, as they are seen now."""
        ...

    def changed(self, change: KvChange) -> None:
        """A block came to a tier of this store, or left it."""
        ...

    def inexact(self, key: BlockKey, there: bool) -> None:
        """Whether what comes to memory under this name next was decoded from lossy KV: then it is
        for workers of this store alone."""
        ...

    def recovered(self, key: BlockKey) -> None:
        """An earlier life has left this block on disk: the next change that names it says so."""
        ...

    def was_put(self, key: BlockKey) -> None:
        """A worker of this store has put it."""
        ...

    def used(self, keys: Iterable[BlockKey]) -> None:
        """A worker of this store reads these."""
        ...

    def doubt(self, keys: Sequence[BlockKey]) -> None:
        """Nobody in the pool is to find these from now on."""
        ...

    async def clear(
        self, tenant: bytes | None, keys: Sequence[BlockKey] | None
    ) -> tuple[int, Sequence[str]]:
        """Have the tenant's blocks (None: anybody's) among the keys (None: all) forgotten at all
        peers; how many it were, and which peers could not be asked."""
        ...

    def reading(self, terms: FetchTerms) -> Reading | None:
        """Of a new caller; None: there is nobody to read from."""
        ...

    def levels(self) -> TierStats | None:
        """Counts of what came at which level, and how long it takes; None: there is nobody to read
        from."""
        ...

    async def fill(
        self,
        record: RecordedBlock,
        slot: Slot,
        deadline: Seconds,
        level: str = RAW,
        call: int = 0,
    ) -> Filled | None:
        """Read a block into a slot that is the caller's, at `level` if the peer can; None: nobody
        had it by then. The slot is not touched any more when this returns. Blocks that are wanted
        at the same time under another `call` are not waited for."""
        ...

    def attach(self, blocks: "TieredBlocks") -> None:
        """These are the tiers, from now on to `close`. Once."""
        ...

    async def hand_over(self, within_s: Seconds) -> None:
        """This store is about to leave, and is still read from: have peers take what only it has,
        as far as they do in time."""
        ...

    async def close(self) -> None:
        """Leave the pool: nobody reads here any more, and nothing is read."""
        ...


class Alone:
    """There are none. Implements `Peers`."""

    possible = False
    keys: Collection[BlockKey] = ()

    def __contains__(self, key: BlockKey) -> bool:
        """See `Peers`; so all below."""
        return False

    def first_to_go(self, idle: Callable[[BlockKey], bool], now: Seconds) -> BlockKey | None:
        """Nothing is a copy."""
        return None

    def is_home(self, key: BlockKey) -> bool:
        """Where else."""
        return True

    def views(self) -> tuple[PoolPeer, ...]:
        """There are none."""
        return ()

    def changed(self, change: KvChange) -> None:
        """Nobody listens."""

    def inexact(self, key: BlockKey, there: bool) -> None:
        """Nobody listens."""

    def recovered(self, key: BlockKey) -> None:
        """Nobody listens."""

    def was_put(self, key: BlockKey) -> None:
        """It stays."""

    def used(self, keys: Iterable[BlockKey]) -> None:
        """Nobody counts."""

    def doubt(self, keys: Sequence[BlockKey]) -> None:
        """Nobody else has them."""

    async def clear(
        self, tenant: bytes | None, keys: Sequence[BlockKey] | None
    ) -> tuple[int, Sequence[str]]:
        """Nobody else has them."""
        return 0, ()

    def reading(self, terms: FetchTerms) -> Reading | None:
        """There is nothing to read."""
        return None

    def levels(self) -> TierStats | None:
        """Nothing came."""
        return None

    async def fill(
        self,
        record: RecordedBlock,
        slot: Slot,
        deadline: Seconds,
        level: str = RAW,
        call: int = 0,
    ) -> Filled | None:
        """Nobody has it."""
        return None

    def attach(self, blocks: "TieredBlocks") -> None:
        """Nothing begins."""

    async def hand_over(self, within_s: Seconds) -> None:
        """There is nobody who could take it."""

    async def close(self) -> None:
        """Nothing ends."""
