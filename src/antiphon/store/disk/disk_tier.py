"""The disk tier: blocks of KV in append-only segment files of one folder."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from antiphon.store.record import KvOrigin, RecordedBlock
from antiphon.types import BlockKey, Seconds, TierStats

from .outcomes import Appended, DiskMiss, Fsync, NotAppended, Page, Verified

SEGMENT_BYTES = 64 << 20


class DiskTier:
    """Blocks of one origin in a folder that this process has for itself.

    `append` blocks and is called from one thread at a time; everything else may be called from any
    thread at any time. Nothing that a disk does is raised. Other origins' records in the folder are
    kept, unseen, until their segment is the oldest of a full tier.
    """

    def __init__(
        self,
        folder: Path,
        origin: KvOrigin,
        *,
        limit_bytes: int,
        fsync: Fsync = Fsync.SEGMENT,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """Make the folder (mode 0700) if need be and lock it; reads nothing else.

        Raises `UsageError`: the folder can't be made or written, others can enter it, or another
        store uses it.
        """
        raise NotImplementedError

    def recover(
        self, progress: Callable[[int, int], None] | None = None
    ) -> tuple[RecordedBlock, ...]:
        """Find what earlier lives left; returns the blocks that were found, oldest first.

        Reads headers only, a few milliseconds a GiB. Call it once; the tier can be used meanwhile
        (from other threads), and has what was found so far. `progress(bytes done, bytes in all)` is
        called after each segment.
        """
        raise NotImplementedError

    def append(
        self, block: RecordedBlock, pages: Sequence[Page], checksums: Sequence[int]
    ) -> Appended | NotAppended:
        """Write a block. `checksums`: XXH3-64 of each page, as `OwnedRegion.seal` gives them.

        Pages whose bytes have other checksums (they were reassigned meanwhile) are never given to a
        reader. Raises `BugError` if the pages are not those of one block.
        """
        raise NotImplementedError

    def read(self, key: BlockKey, into: Sequence[Page]) -> DiskMiss | None:
        """Read a block into `into`; None: all of it is there and verified, else `into` means
        nothing. Counts as a use of the block. Raises `BugError` for pages that are not a block's.
        """
        raise NotImplementedError

    def __contains__(self, key: BlockKey) -> bool:
        """Whether it can probably be read. Counts as no use."""
        raise NotImplementedError

    def present(self, keys: Sequence[BlockKey]) -> int:
        """How many of `keys`, from the first on without a gap, are here. Counts as no use."""
        raise NotImplementedError

    def block(self, key: BlockKey) -> RecordedBlock | None:
        """What is known of a block; None: it is not here."""
        raise NotImplementedError

    def remove(self, keys: Iterable[BlockKey]) -> tuple[BlockKey, ...]:
        """Forget these for good (a restart does not bring them back); returns those that were here.

        Their bytes stay until their segment goes.
        """
        raise NotImplementedError

    def clear(self, tenant: bytes | None = None) -> tuple[BlockKey, ...]:
        """Forget all of a tenant's blocks as `remove` does.

        Without one: all of this origin; then segments that hold nothing else are deleted.
        """
        raise NotImplementedError

    def verify(self, keys: Iterable[BlockKey] | None = None) -> Verified:
        """Read these (without: all) again and compare checksums. Takes as long as the disk does."""
        raise NotImplementedError

    def stats(self) -> TierStats:
        """Counts at this moment. `dropped` has the refusals, misses and what recovery skipped."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush as `fsync` says and unlock the folder. Running calls end first; later ones miss."""
        raise NotImplementedError
