"""Puts that wait for the copy thread: bounded for each worker and in all, and fair between them."""

from collections import deque
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from antiphon.types import BlockKey, PutBlock

BLOCKS_A_WORKER = 4096
BLOCKS_IN_ALL = 65536
"""A block that waits takes some 100 B a page here; its KV stays in its worker's memory."""

Owner = TypeVar("Owner", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A block that its worker wants to be kept, for this tenant."""

    tenant: bytes
    block: PutBlock


class PutQueue(Generic[Owner]):
    """First in, first out for each owner; owners take turns. A full queue takes nothing more:
    what is late would be reassigned by its worker before it was copied."""

    def __init__(
        self, blocks_an_owner: int = BLOCKS_A_WORKER, blocks_in_all: int = BLOCKS_IN_ALL
    ) -> None:
        self._of: dict[Owner, deque[Waiting]] = {}
        self._each = blocks_an_owner
        self._all = blocks_in_all
        self._waiting = 0

    def __len__(self) -> int:
        """Blocks that wait."""
        return self._waiting

    def add(self, owner: Owner, blocks: Sequence[Waiting]) -> int:
        """Take the first of `blocks` that there is room for; how many. Mutates."""
        queue = self._of.setdefault(owner, deque())
        taken = max(0, min(len(blocks), self._each - len(queue), self._all - self._waiting))
        queue.extend(blocks[:taken])
        self._waiting += taken
        if not queue:
            del self._of[owner]
        return taken

    def take(self, most: int) -> tuple[Owner, list[Waiting]] | None:
        """Up to `most` blocks of the owner whose turn it is. None: nobody waits. Mutates."""
        if not self._of:
            return None
        owner = next(iter(self._of))
        queue = self._of.pop(owner)
        taken = [queue.popleft() for _ in range(min(most, len(queue)))]
        self._waiting -= len(taken)
        if queue:
            self._of[owner] = queue
        return owner, taken

    def drop(self, keys: Collection[BlockKey] | None, tenant: bytes | None = None) -> int:
        """Nobody wants these blocks (None: any), of that tenant (None: of any), any more; how many
        it were. O(all that wait). Mutates."""
        before = self._waiting
        for owner, queue in list(self._of.items()):
            kept = deque(
                one
                for one in queue
                if (keys is not None and one.block.key not in keys)
                or tenant not in (None, one.tenant)
            )
            self._waiting -= len(queue) - len(kept)
            if kept:
                self._of[owner] = kept
            else:
                del self._of[owner]
        return before - self._waiting

    def forget(self, owner: Owner) -> int:
        """The owner is gone: its blocks too; how many. Mutates."""
        dropped = len(self._of.pop(owner, ()))
        self._waiting -= dropped
        return dropped
