"""What a scheduler is put together from."""

from collections.abc import Callable
from dataclasses import dataclass

from antiphon.core.handover import LeaseBook
from antiphon.core.kv import BlockKeys, PagePool

from .admission import Admission
from .batching import Flight, batch
from .completion import Completion
from .history import History
from .receiving import Receiving
from .roster import Roster
from .sequence_memory import SequenceMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The kind of each part. Tests put in faulty ones, and demand that a law finds them."""

    pool: type[PagePool] = PagePool
    block_keys: type[BlockKeys] = BlockKeys
    memory: type[SequenceMemory] = SequenceMemory
    history: type[History] = History
    admission: type[Admission] = Admission
    roster: type[Roster] = Roster
    completion: type[Completion] = Completion
    lease_book: type[LeaseBook] = LeaseBook
    receiving: type[Receiving] = Receiving
    batch: Callable[..., Flight | None] = batch


STANDARD_PARTS = Parts()
